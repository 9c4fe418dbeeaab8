-- Hand out up to `idle` messages, highest lane first.
-- ARGV: worker, idle, room (slots that reserved lanes may still take), starve_ms, starve_every,
--       turns name; then queue, reserved ("1"/"0") per lane, highest first.
-- Answers a list of {queue, id, message, times handed out}.

local worker = ARGV[1]
local idle, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local starve_ms, starve_every = tonumber(ARGV[4]), tonumber(ARGV[5])
local turns = ns .. ":__turns__." .. ARGV[6]
local now = now_ms()

redis.call("ZADD", heartbeats, now, worker)
redis.call("DEL", wake_key("@" .. worker))

local is_paused = {}
for _, queue in ipairs(redis.call("SMEMBERS", paused)) do is_paused[queue] = true end

local lanes = {}
for i = 7, #ARGV, 2 do
  if is_paused[ARGV[i]] then
    -- Or idle workers would wake each other over what nobody may take.
    redis.call("DEL", wake_key(ARGV[i]))
  else
    lanes[#lanes + 1] = { queue = ARGV[i], reserved = ARGV[i + 1] == "1" }
  end
end

-- The next id of a lane; ids whose message was removed are dropped on the way.
local function head(queue)
  while true do
    local id = peek(queue)
    if not id or redis.call("HEXISTS", msgs(queue), id) == 1 then return id end
    pull(queue, id)
  end
end

local function open(lane) return room > 0 or not lane.reserved end

-- Among the lanes below the top one, the one whose next message waits longest, if too long.
local function starved(top)
  local best, best_at
  for i = top + 1, #lanes do
    local id = open(lanes[i]) and head(lanes[i].queue)
    if id then
      local at = tonumber(redis.call("HGET", since(lanes[i].queue), id) or now)
      if now - at >= starve_ms and (not best or at < best_at) then best, best_at = i, at end
    end
  end
  return best
end

local function pick()
  for top = 1, #lanes do
    if open(lanes[top]) and head(lanes[top].queue) then
      if tonumber(redis.call("GET", turns) or "0") + 1 >= starve_every then
        local other = starved(top)
        if other then
          redis.call("SET", turns, 0)
          return lanes[other]
        end
      end
      redis.call("INCR", turns)
      return lanes[top]
    end
  end
end

local taken = {}
while #taken < idle do
  local lane = pick()
  if not lane then break end
  local id = peek(lane.queue)
  pull(lane.queue, id)
  redis.call("SADD", acks(worker, lane.queue), id)
  if lane.reserved then room = room - 1 end
  taken[#taken + 1] = {
    lane.queue, id, redis.call("HGET", msgs(lane.queue), id),
    redis.call("HINCRBY", tries(lane.queue), id, 1),
  }
end

-- Tokens are worth something only while messages wait; what is left needs one for the next worker.
for _, lane in ipairs(lanes) do
  if redis.call("LLEN", list(lane.queue)) == 0 then
    redis.call("DEL", wake_key(lane.queue))
  elseif redis.call("LLEN", wake_key(lane.queue)) == 0 then
    wake(lane.queue)
  end
end
return taken
