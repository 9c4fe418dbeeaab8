-- ARGV: worker, what (beat|leave|nudge), queues (for leave and nudge).
-- A worker that leaves while it holds something stays listed, or nobody would know whose ack sets
-- to return. One that is nudged may have taken a token that it will not use, so others get one.

local worker, what = ARGV[1], ARGV[2]
if what == "beat" then
  redis.call("ZADD", heartbeats, now_ms(), worker)
elseif what == "nudge" then
  nudge(worker)
  for i = 3, #ARGV do
    if redis.call("LLEN", list(ARGV[i])) > 0 then wake(ARGV[i]) end
  end
else
  for i = 3, #ARGV do
    if redis.call("SCARD", acks(worker, ARGV[i])) > 0 then return 0 end
  end
  redis.call("ZREM", heartbeats, worker)
  redis.call("DEL", wake_key("@" .. worker))
end
return 1
