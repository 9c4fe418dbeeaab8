-- ARGV: queue, id. Takes a waiting message away; answers 1 if it was waiting, else 0.

local removed = redis.call("LREM", list(ARGV[1]), 1, ARGV[2])
if removed == 1 then forget(ARGV[1], ARGV[2]) end
return removed
