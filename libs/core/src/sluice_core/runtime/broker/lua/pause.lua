-- ARGV: what (pause|resume|set), queues. `set` makes them all that are paused.
-- The database knows what is paused; this is what a fetch can see in its own atomic step.

local function resume(queue)
  if redis.call("SREM", paused, queue) == 1 and redis.call("LLEN", list(queue)) > 0 then
    wake(queue)
  end
end

local what, wanted = ARGV[1], {}
for i = 2, #ARGV do wanted[ARGV[i]] = true end
if what == "set" then
  for _, queue in ipairs(redis.call("SMEMBERS", paused)) do
    if not wanted[queue] then resume(queue) end
  end
end
for queue in pairs(wanted) do
  if what == "resume" then resume(queue) else redis.call("SADD", paused, queue) end
end
return redis.call("SCARD", paused)
