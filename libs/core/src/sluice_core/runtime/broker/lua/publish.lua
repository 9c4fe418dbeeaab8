-- ARGV: queue, id, message, owner or ""; repeated. Answers 1 for each that was new, else 0.

local function held(queue, id)
  for _, worker in ipairs(redis.call("ZRANGE", heartbeats, 0, -1)) do
    if redis.call("SISMEMBER", acks(worker, queue), id) == 1 then return true end
  end
  return false
end

local now = now_ms()
local fresh = {}
for i = 1, #ARGV, 4 do
  local queue, id, message, owner = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local is_new = redis.call("HSETNX", msgs(queue), id, message)
  if is_new == 1 then
    redis.call("HSET", since(queue), id, now)
    if owner ~= "" then redis.call("HSET", owners(queue), id, owner) end
    push(queue, id, false)
  elseif not redis.call("LPOS", list(queue), id) and not held(queue, id) then
    -- Known, yet neither waiting nor held by anybody: without this it could never be sent again.
    push(queue, id, false)
  end
  wake(queue)
  fresh[#fresh + 1] = is_new
end
return fresh
