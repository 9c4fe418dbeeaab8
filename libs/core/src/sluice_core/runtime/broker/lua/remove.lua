-- ARGV: queue, id. Takes a waiting message away; answers 1 if it was waiting, else 0.

if not pull(ARGV[1], ARGV[2]) then return 0 end
forget(ARGV[1], ARGV[2])
return 1
