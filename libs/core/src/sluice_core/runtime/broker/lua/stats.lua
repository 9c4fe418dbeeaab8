-- ARGV: queues. Answers {waiting, in flight, age of the next message in ms or -1} per queue.

local now = now_ms()
local stats = {}
for i, queue in ipairs(ARGV) do
  local waiting = redis.call("LLEN", list(queue))
  local id = redis.call("LINDEX", list(queue), 0)
  local at = id and redis.call("HGET", since(queue), id)
  stats[i] = { waiting, redis.call("HLEN", msgs(queue)) - waiting, at and math.max(0, now - tonumber(at)) or -1 }
end
return stats
