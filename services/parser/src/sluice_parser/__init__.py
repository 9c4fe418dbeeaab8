"""The parse stage: what is behind a link? `worker` holds its handler; yt-dlp runs in a child."""
