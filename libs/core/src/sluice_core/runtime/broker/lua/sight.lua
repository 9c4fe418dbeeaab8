-- All that is known of messages. ARGV: queue, id; repeated. Answers for each
-- {place, how many come first or -1, times handed out, worker that holds it or ""}.

local function holder(queue, id)
  for _, worker in ipairs(redis.call("ZRANGE", heartbeats, 0, -1)) do
    if redis.call("SISMEMBER", acks(worker, queue), id) == 1 then return worker end
  end
  return ""
end

local found = {}
for i = 1, #ARGV, 2 do
  local queue, id = ARGV[i], ARGV[i + 1]
  local seen = { "absent", -1, 0, "" }
  if redis.call("HEXISTS", msgs(queue), id) == 1 then
    local handed_out = tonumber(redis.call("HGET", tries(queue), id) or "0")
    local before = redis.call("ZRANK", fair(queue), id) or redis.call("LPOS", list(queue), id)
    if before then
      seen = { "waiting", before, handed_out, "" }
    else
      seen = { "in_flight", -1, handed_out, holder(queue, id) }
    end
  end
  found[#found + 1] = seen
end
return found
