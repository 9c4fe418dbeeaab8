-- Return what dead workers held. ARGV: max_age_ms, queues. Answers how many went back.

local dead = redis.call("ZRANGEBYSCORE", heartbeats, "-inf", now_ms() - tonumber(ARGV[1]), "LIMIT", 0, 100)
local returned = 0
for _, worker in ipairs(dead) do
  for i = 2, #ARGV do
    local ids = redis.call("SMEMBERS", acks(worker, ARGV[i]))
    returned = returned + put_back(worker, ARGV[i], ids)
  end
  redis.call("ZREM", heartbeats, worker)
end
return returned
