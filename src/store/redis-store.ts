/**
 * Implements a store in Redis (6.2 or newer, or compatible) that several replicas share. While Redis is disconnected,
 * operations are rejected immediately and the connection is retried with exponential backoff. If Redis does not
 * respond, operations are rejected after the timeout.
 */
import { Redis, type RedisOptions, ReplyError } from "ioredis";
import type { Clock } from "../base/clock.ts";
import { urlLabel } from "../base/url-label.ts";
import type { Logger } from "../record/log/logger.ts";
import { holdsKey, MAX_GAPS, NUMBERS_KEPT_MS } from "./holds.ts";
import { createRedisBus } from "./redis-bus.ts";
import { checkAmount, checkEntry, MAX_VALUE_BYTES, PAGE_SIZE, type Store, StoreUnavailable } from "./store.ts";

export interface RedisSettings {
  /** The URL is `redis://` or `rediss://`, optionally with user, password, and database. */
  readonly url: string;
  /** Precedes every key, so that other applications can use the same database. */
  readonly prefix: string;
  readonly timeoutMs: number;
  /** The trusted certificate authorities are in PEM format. By default, Node's list applies. */
  readonly ca?: string | undefined;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;
const DEAD_AFTER_LIMITS = 2;
const NOT_YET = "not connected yet";

/** Resolves even if Redis is unavailable, so that the gateway can start. */
export async function openRedisStore(settings: RedisSettings, logger: Logger, clock: Clock): Promise<Store> {
  const { prefix, timeoutMs } = settings;
  let problem: string | undefined = NOT_YET;
  let isClosed = false;
  const options = {
    lazyConnect: true,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    // Commands are never repeated automatically, because an addition could count twice.
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableReadyCheck: true,
    retryStrategy: (times: number) =>
      isClosed ? null : Math.min(FIRST_PAUSE_MS * 2 ** Math.min(times, 10), LONGEST_PAUSE_MS),
    ...(settings.ca === undefined ? {} : { tls: { ca: settings.ca } }),
  } satisfies RedisOptions;
  const redis = new Redis(settings.url, { ...options, socketTimeout: timeoutMs * DEAD_AFTER_LIMITS });
  redis.on("ready", () => {
    if (problem !== undefined) logger.info("Redis is connected", { address: urlLabel(settings.url) });
    problem = undefined;
  });
  // Some system errors have a code and no message.
  redis.on("error", (error: NodeJS.ErrnoException) => markUnavailable(error.message || String(error.code)));
  redis.on("close", () => markUnavailable(problem ?? "the connection was closed"));
  redis.defineCommand("gatewayAdd", { numberOfKeys: 1, lua: ADD });
  redis.defineCommand("gatewayAddHeld", { numberOfKeys: 2, lua: ADD_HELD });
  redis.defineCommand("gatewayReplace", { numberOfKeys: 1, lua: REPLACE });
  const scripts = redis as unknown as {
    gatewayAdd(key: string, ...values: string[]): Promise<[number, string]>;
    gatewayAddHeld(key: string, holdsKey: string, ...values: string[]): Promise<[number, string]>;
    gatewayReplace(key: string, ...values: string[]): Promise<number>;
  };

  function markUnavailable(reason: string): void {
    if (isClosed || reason === problem) return;
    if (problem === undefined || problem === NOT_YET)
      logger.error("Redis is not available", { address: urlLabel(settings.url), reason });
    problem = reason;
  }

  async function run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (redis.status !== "ready") throw new StoreUnavailable(problem ?? "not connected");
    try {
      return await work();
    } catch (error) {
      const { message } = error as Error;
      if (message.includes("NOTCOUNTER")) throw new TypeError("the value of this key is not a counter");
      if (message.includes("TOOLARGE")) throw new RangeError("the counter would become too large");
      // Only an error of the server itself proves that the command was not run.
      throw new StoreUnavailable(message, { cause: error, isUncertain: !(error instanceof ReplyError) });
    }
  }

  /** Redis gets the remaining time, because its clock may differ. An entry without time left is not stored. */
  function lifetime({ expiresAtMs }: { readonly expiresAtMs?: number } = {}): number | undefined {
    return expiresAtMs === undefined ? undefined : Math.max(0, Math.ceil(expiresAtMs - clock.now()));
  }

  await redis
    .connect()
    .catch((error: Error) => markUnavailable(problem === NOT_YET ? error.message : (problem ?? error.message)));

  const bus = createRedisBus({
    clock,
    prefix,
    timeoutMs,
    connection: () => new Redis(settings.url, { ...options, autoResubscribe: false }),
    publish: (channel, text) => run(() => redis.publish(channel, text)),
  });

  return {
    kind: "redis",
    isShared: true,
    bus,
    async get(key) {
      return checkedValue(await run(() => redis.get(prefix + key)));
    },
    async set(key, value, options) {
      checkEntry(key, value);
      const lifetimeMs = lifetime(options);
      if (lifetimeMs === undefined) await run(() => redis.set(prefix + key, value));
      else if (lifetimeMs === 0) await run(() => redis.del(prefix + key));
      else await run(() => redis.set(prefix + key, value, "PX", lifetimeMs));
    },
    async delete(key) {
      return (await run(() => redis.del(prefix + key))) === 1;
    },
    async replace(key, expected, value, options) {
      checkEntry(key, value);
      const lifetimeMs = String(lifetime(options) ?? "");
      const given = expected === undefined ? "0" : "1";
      return (await run(() => scripts.gatewayReplace(prefix + key, given, expected ?? "", value, lifetimeMs))) === 1;
    },
    async add(key, amount, options) {
      checkEntry(key);
      checkAmount(amount);
      const lifetimeMs = String(lifetime(options) ?? "");
      const limit = options?.limit === undefined ? "" : String(options.limit);
      const hold = options?.hold;
      if (hold !== undefined) {
        const { owner, sequence, taken = 0, released = 0, renewed, forMs } = hold;
        const numbers = [sequence, taken, released, renewed?.amount ?? "", renewed?.isExact === true ? 1 : 0, forMs];
        const [isAdded, total] = await run(() =>
          scripts.gatewayAddHeld(
            prefix + key,
            prefix + holdsKey(key),
            ...[amount, limit, lifetimeMs, owner, ...numbers].map(String),
          ),
        );
        return { isAdded: isAdded === 1, total: Number(total) };
      }
      const [isAdded, total] = await run(() => scripts.gatewayAdd(prefix + key, String(amount), limit, lifetimeMs));
      return { isAdded: isAdded === 1, total: Number(total) };
    },
    async list(keyPrefix, cursor = "0") {
      const pattern = `${escapeGlob(prefix + keyPrefix)}*`;
      const [next, keys] = await run(() => redis.scan(cursor, "MATCH", pattern, "COUNT", PAGE_SIZE));
      const values = keys.length === 0 ? [] : await run(() => redis.mget(keys));
      const entries = keys.flatMap((key, i) => {
        const value = checkedValue(values[i]);
        return value === undefined ? [] : [{ key: key.slice(prefix.length), value }];
      });
      return next === "0" ? { entries } : { entries, cursor: next };
    },
    // Redis's own settings determine when it writes to disk.
    sync: async () => undefined,
    health: () => (problem === undefined ? { state: "up" } : { state: "degraded", reason: problem }),
    async close() {
      isClosed = true;
      bus.close();
      redis.disconnect();
    },
  };
}

function escapeGlob(text: string): string {
  return text.replace(/[\\*?[\]^-]/g, "\\$&");
}

/**
 * Expects the counter in KEYS, and the amount, the limit or "", and the lifetime or "" in ARGV. Returns whether the
 * amount was added, and the total.
 */
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
  elseif ARGV[3] == '' then redis.call('SET', KEYS[1], text)
  elseif ARGV[3] ~= '0' then redis.call('SET', KEYS[1], text, 'PX', ARGV[3]) end
end
return {1, text}
`;

/**
 * Does what `addHeld` does. Expects the counter and its holds in KEYS, and in ARGV the amount, the limit or "", the
 * lifetime or "", and the owner, the number, the amounts taken, released, and renewed or "", 1 if that is exact, and the
 * time of the hold. Redis' clock is used, so that all replicas agree.
 */
export const ADD_HELD = `
redis.replicate_commands()
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function digits(number) return string.format('%.0f', number) end
local current = redis.call('GET', KEYS[1])
if current and not string.match(current, '^%d+$') then return redis.error_reply('NOTCOUNTER') end
local before = tonumber(current or '0')
local total = before
local known = redis.call('GET', KEYS[2]) or ''
local holders = {}
local mine
for line in string.gmatch(known, '[^\\n]+') do
  local owner, held, untilMs, last, gaps = string.match(line, '^(%S+) (%d+) (%d+) (%d+) (%S+)$')
  if owner then
    local holder = { owner = owner, held = tonumber(held), untilMs = tonumber(untilMs), last = tonumber(last), gaps = {} }
    for gap in string.gmatch(gaps, '%d+') do table.insert(holder.gaps, tonumber(gap)) end
    if not current then holder.held = 0 end
    if holder.untilMs <= now then
      total = math.max(0, total - holder.held)
      holder.held = 0
    end
    if holder.untilMs + ${NUMBERS_KEPT_MS} > now then
      table.insert(holders, holder)
      if owner == ARGV[4] then mine = holder end
    end
  end
end
local isAdded = 1
if ARGV[4] ~= '' then
  local sequence = tonumber(ARGV[5])
  if not mine then
    mine = { owner = ARGV[4], held = 0, last = math.max(0, sequence - 1), gaps = {} }
    table.insert(holders, mine)
  end
  mine.untilMs = now + tonumber(ARGV[10])
  local isNew = sequence == 0
  if sequence > mine.last then
    isNew = true
    for lost = math.max(mine.last + 1, sequence - ${MAX_GAPS}), sequence - 1 do table.insert(mine.gaps, lost) end
    while #mine.gaps > ${MAX_GAPS} do table.remove(mine.gaps, 1) end
    mine.last = sequence
  else
    for i, gap in ipairs(mine.gaps) do
      if gap == sequence then
        isNew = true
        table.remove(mine.gaps, i)
        break
      end
    end
  end
  if isNew then
    local added = tonumber(ARGV[1]) + tonumber(ARGV[6])
    local ended = math.min(mine.held, tonumber(ARGV[7]))
    if ARGV[2] ~= '' and added > 0 and total - ended + added > tonumber(ARGV[2]) then isAdded = 0
    else
      total = total - ended + added
      mine.held = mine.held - ended + tonumber(ARGV[6])
    end
  end
  if ARGV[8] ~= '' then
    local held = tonumber(ARGV[8])
    if ARGV[9] ~= '1' then held = math.max(held, mine.held) end
    total = total + held - mine.held
    mine.held = held
  end
end
total = math.max(0, total)
if total > 9007199254740991 then return redis.error_reply('TOOLARGE') end
if total ~= before then
  if current then redis.call('SET', KEYS[1], digits(total), 'KEEPTTL')
  elseif ARGV[3] == '' then redis.call('SET', KEYS[1], digits(total))
  elseif ARGV[3] ~= '0' then redis.call('SET', KEYS[1], digits(total), 'PX', ARGV[3]) end
end
local lines = {}
for _, holder in ipairs(holders) do
  local gaps = {}
  for _, gap in ipairs(holder.gaps) do table.insert(gaps, digits(gap)) end
  local listed = #gaps == 0 and '-' or table.concat(gaps, ',')
  table.insert(lines, table.concat({ holder.owner, digits(holder.held), digits(holder.untilMs), digits(holder.last), listed }, ' '))
end
local text = table.concat(lines, '\\n')
if text == '' then redis.call('DEL', KEYS[2])
elseif text ~= known then redis.call('SET', KEYS[2], text, 'PX', digits(tonumber(ARGV[10]) + ${NUMBERS_KEPT_MS})) end
return {isAdded, digits(total)}
`;

/**
 * Expects the key in KEYS, and 1 if a value is expected, that value, the new value, and the lifetime or "" in ARGV.
 * Returns 1 if the value was set.
 */
export const REPLACE = `
local current = redis.call('GET', KEYS[1])
if ARGV[1] == '1' then
  if current ~= ARGV[2] then return 0 end
elseif current then return 0 end
if ARGV[4] == '' then redis.call('SET', KEYS[1], ARGV[3])
elseif ARGV[4] ~= '0' then redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
else redis.call('DEL', KEYS[1]) end
return 1
`;

/** The gateway writes no larger values, so such a value is from another program. */
function checkedValue(value: string | null | undefined): string | undefined {
  if (value !== null && value !== undefined && Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw new StoreUnavailable(`a value has more than ${MAX_VALUE_BYTES} bytes`);
  return value ?? undefined;
}
