/**
 * What Redis does in one step, as Lua: the server runs a script alone, so replicas never see it half done. Totals are
 * text, because Redis would cut what a script returns as a number.
 */

/** KEYS: counter. ARGV: amount, limit or "", expiry or 0. Returns whether it was added, and the total. */
export const ADD = `
local current = redis.call('GET', KEYS[1])
local before = 0
if current then
  before = tonumber(current)
  if not before or not string.match(current, '^%d+$') then return redis.error_reply('NOTCOUNTER') end
end
local amount = tonumber(ARGV[1])
local total = before + amount
if total < 0 then total = 0 end
if total > 9007199254740991 then return redis.error_reply('TOOLARGE') end
local text = string.format('%.0f', total)
if amount > 0 and ARGV[2] ~= '' and total > tonumber(ARGV[2]) then
  return {0, string.format('%.0f', before)}
end
if total ~= before then
  if current then redis.call('SET', KEYS[1], text, 'KEEPTTL')
  elseif ARGV[3] ~= '0' then redis.call('SET', KEYS[1], text, 'PXAT', ARGV[3])
  else redis.call('SET', KEYS[1], text) end
end
return {1, text}
`;

/** KEYS: key. ARGV: 1 if a value is expected, that value, the new value, expiry or 0. */
export const REPLACE = `
local current = redis.call('GET', KEYS[1])
if ARGV[1] == '1' then
  if current ~= ARGV[2] then return 0 end
elseif current then return 0 end
if ARGV[4] ~= '0' then redis.call('SET', KEYS[1], ARGV[3], 'PXAT', ARGV[4])
else redis.call('SET', KEYS[1], ARGV[3]) end
return 1
`;
