"""The HTTP API, its event streams and the web page.

`app.create_app` puts it together from `deps.Deps`, `serve.main` runs it. `routes` hold one module
per group of addresses, `models` what requests and answers look like, `events` what is streamed.
"""
