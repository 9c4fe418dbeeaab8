-- Return what a worker's ack sets name and the worker does not hold.
-- ARGV: worker, number of queues, queues, ids held. Answers how many went back.

local worker, count = ARGV[1], tonumber(ARGV[2])
local held = {}
for i = 3 + count, #ARGV do held[ARGV[i]] = true end

local returned = 0
for i = 3, 2 + count do
  local strangers = {}
  for _, id in ipairs(redis.call("SMEMBERS", acks(worker, ARGV[i]))) do
    if not held[id] then strangers[#strangers + 1] = id end
  end
  returned = returned + put_back(worker, ARGV[i], strangers)
end
return returned
