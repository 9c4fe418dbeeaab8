-- ARGV: queue, id; repeated. Answers "waiting", "in_flight" or "absent" for each.

local places = {}
for i = 1, #ARGV, 2 do
  local place = "absent"
  if redis.call("HEXISTS", msgs(ARGV[i]), ARGV[i + 1]) == 1 then
    place = redis.call("LPOS", list(ARGV[i]), ARGV[i + 1]) and "waiting" or "in_flight"
  end
  places[#places + 1] = place
end
return places
