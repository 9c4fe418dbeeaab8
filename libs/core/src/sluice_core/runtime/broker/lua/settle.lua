-- ARGV: worker, what (ack|front|back), queue, id, nudge ("1"/"0"). Answers 1 if the id was held.
-- An id that is no longer in the ack set was given to somebody else: nothing of it may be touched.

local worker, what, queue, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local mine = 0
if what == "front" then
  mine = put_back(worker, queue, { id })
elseif redis.call("SREM", acks(worker, queue), id) == 1 then
  mine = 1
  if what == "ack" then
    forget(queue, id)
  elseif redis.call("HEXISTS", msgs(queue), id) == 1 then
    push(queue, id, false)
    wake(queue)
  end
end
if ARGV[5] == "1" then nudge(worker) end
return mine
