-- Shared by every script, which is appended to this text.
--
-- Keys, in the namespace KEYS[1]; the first two and __acks__, __heartbeats__ are dramatiq's layout:
--   <ns>:<queue>                      list of waiting ids, next one first
--   <ns>:<queue>.msgs                 hash id -> message, waiting or in flight
--   <ns>:<queue>.since                hash id -> ms of its first publishing
--   <ns>:<queue>.tries                hash id -> how often it was handed out
--   <ns>:__acks__.<worker>.<queue>    set of ids handed out and not settled
--   <ns>:__heartbeats__               sorted set of workers by their last sign of life, ms
--   <ns>:__wake__.<queue>             list of tokens; idle workers block on it
--   <ns>:__wake__.@<worker>           the same for one worker alone
--   <ns>:__turns__.<actor>            slots given since a starved lane got one
--   <ns>:__paused__                   set of queues of which nothing is handed out
--
-- Only in queues whose messages have an owner; these are handed out in turn, owner by owner:
--   <ns>:<queue>.owners               hash id -> owner
--   <ns>:<queue>.fair                 sorted set of the waiting ids by their turn
--   <ns>:<queue>.last                 hash owner -> turn of its newest message
--   <ns>:<queue>.turn                 turn of the message that was handed out last
--
-- Only the server's clock is used: a caller's may be wrong by minutes.

local ns = KEYS[1]
local WAKE_CAP = 64
local PRIVATE_TTL = 60

local heartbeats = ns .. ":__heartbeats__"
local paused = ns .. ":__paused__"
local function list(queue) return ns .. ":" .. queue end
local function msgs(queue) return ns .. ":" .. queue .. ".msgs" end
local function since(queue) return ns .. ":" .. queue .. ".since" end
local function tries(queue) return ns .. ":" .. queue .. ".tries" end
local function owners(queue) return ns .. ":" .. queue .. ".owners" end
local function fair(queue) return ns .. ":" .. queue .. ".fair" end
local function last(queue) return ns .. ":" .. queue .. ".last" end
local function turn(queue) return ns .. ":" .. queue .. ".turn" end
local function acks(worker, queue) return ns .. ":__acks__." .. worker .. "." .. queue end
local function wake_key(name) return ns .. ":__wake__." .. name end

local function now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- One token per new message wakes a burst's worth of workers at once; beyond the cap, whoever
-- fetches and leaves something behind passes a token on.
local function wake(queue)
  if redis.call("LLEN", wake_key(queue)) < WAKE_CAP then
    redis.call("RPUSH", wake_key(queue), "1")
  end
end

local function nudge(worker)
  local key = wake_key("@" .. worker)
  if redis.call("LLEN", key) == 0 then redis.call("RPUSH", key, "1") end
  redis.call("EXPIRE", key, PRIVATE_TTL)
end

-- Let an id wait, behind all others or before them.
local function push(queue, id, front)
  redis.call(front and "LPUSH" or "RPUSH", list(queue), id)
  local owner = redis.call("HGET", owners(queue), id)
  if not owner then return end
  -- Whoever has nothing waiting begins at the present turn, so that no absence is saved up.
  local at = tonumber(redis.call("GET", turn(queue)) or "0")
  if not front then
    at = math.max(at, tonumber(redis.call("HGET", last(queue), owner) or "0")) + 1
    redis.call("HSET", last(queue), owner, at)
  end
  redis.call("ZADD", fair(queue), at, id)
end

-- The id whose turn is next, which stays where it is.
local function peek(queue)
  return redis.call("ZRANGE", fair(queue), 0, 0)[1] or redis.call("LINDEX", list(queue), 0)
end

-- Take an id out of those that wait; false when it does not wait.
local function pull(queue, id)
  local at = redis.call("ZSCORE", fair(queue), id)
  if at then
    redis.call("ZREM", fair(queue), id)
    redis.call("SET", turn(queue), at)
  end
  local found = redis.call("LREM", list(queue), 1, id) == 1
  if redis.call("EXISTS", list(queue)) == 0 then
    redis.call("DEL", fair(queue), last(queue), turn(queue))
  end
  return found
end

local function forget(queue, id)
  redis.call("HDEL", owners(queue), id)
  redis.call("HDEL", msgs(queue), id)
  redis.call("HDEL", since(queue), id)
  redis.call("HDEL", tries(queue), id)
end

-- Take ids out of a worker's ack set and put them before all that wait, oldest first.
local function put_back(worker, queue, ids)
  local aged = {}
  for _, id in ipairs(ids) do
    if redis.call("SREM", acks(worker, queue), id) == 1
        and redis.call("HEXISTS", msgs(queue), id) == 1 then
      aged[#aged + 1] = { id = id, at = tonumber(redis.call("HGET", since(queue), id) or "0") }
    end
  end
  table.sort(aged, function(a, b)
    if a.at ~= b.at then return a.at > b.at end
    return a.id > b.id
  end)
  for _, entry in ipairs(aged) do
    push(queue, entry.id, true)
    wake(queue)
  end
  return #aged
end

