-- ARGV: what (pause|resume), queues. The database knows what is paused; this is what a fetch can see
-- in its own atomic step.

for i = 2, #ARGV do
  local queue = ARGV[i]
  if ARGV[1] == "pause" then
    redis.call("SADD", paused, queue)
  elseif redis.call("SREM", paused, queue) == 1 and redis.call("LLEN", list(queue)) > 0 then
    wake(queue)
  end
end
