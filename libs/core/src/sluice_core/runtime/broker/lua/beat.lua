-- ARGV: worker, what (beat|leave|nudge), queues (for leave). A worker that leaves while it holds something
-- stays listed, or nobody would know whose ack sets to return.

local worker, what = ARGV[1], ARGV[2]
if what == "beat" then
  redis.call("ZADD", heartbeats, now_ms(), worker)
elseif what == "nudge" then
  nudge(worker)
else
  for i = 3, #ARGV do
    if redis.call("SCARD", acks(worker, ARGV[i])) > 0 then return 0 end
  end
  redis.call("ZREM", heartbeats, worker)
  redis.call("DEL", wake_key("@" .. worker))
end
return 1
