import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, testEnv } from "../../../test/support/exchange.ts";
import { type FakeClock, fakeClock } from "../../../test/support/fake-clock.ts";
import type { PersistentRoute } from "../../core/session-persistence.ts";
import { sessionPersistence } from "./policy.ts";

const ADDRESSES = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];

function routeTo(addresses: () => readonly string[], name = "shop"): PersistentRoute {
  return {
    name,
    matches: [{ path: { pathPrefix: "/" } }],
    backends: [{ backend: { routing: { servers: { name: "shop/web:80", addresses } } } }, { backend: {} }],
  };
}

interface Setup {
  readonly config?: Readonly<Record<string, unknown>>;
  readonly route?: PersistentRoute;
  readonly clock?: FakeClock;
}

/** Returns a client that sends one request; the server is `served` unless the session has one. */
function setUp({ config = {}, route = routeTo(() => ADDRESSES), clock = fakeClock() }: Setup = {}) {
  const hooks = sessionPersistence.compile(sessionPersistence.schema.parse({ name: "stick", ...config }), {
    ...testEnv,
    clock,
  });
  return (headers: Record<string, string>, served = ADDRESSES[0], index = 0) => {
    const exchange = anAnsweredExchange({ headers });
    exchange.route = route.name;
    void hooks.shape?.head?.(exchange);
    const found = hooks.settings?.sessions?.find(exchange, route);
    exchange.upstream.backendIndex = found?.index ?? index;
    exchange.upstream.endpoint = found === undefined ? served : found.address;
    void hooks.response?.head(exchange);
    const cookie = exchange.response?.headers.get("set-cookie");
    return {
      found: found && (found.address ?? `backend ${found.index}`),
      cookie,
      value: cookie?.match(/^stick=([^;]*)/)?.[1] ?? exchange.response?.headers.get("stick") ?? "",
      forwarded: exchange.request.headers.get("cookie"),
    };
  };
}

test("a session stays with its server, and its cookie is set once and not forwarded", () => {
  const send = setUp();
  const first = send({}, ADDRESSES[1]);
  assert.equal(first.found, undefined);
  assert.match(first.cookie ?? "", /^stick=[A-Za-z0-9_-]{22}; Path=\/; HttpOnly; SameSite=Strict$/);
  assert.deepEqual(send({ cookie: `a=1; stick=${first.value}; b=2` }), {
    found: ADDRESSES[1],
    cookie: undefined,
    value: "",
    forwarded: "a=1; b=2",
  });
});

test("a backend that does not select between addresses has a session too", () => {
  const send = setUp();
  const first = send({}, undefined, 1);
  assert.equal(send({ cookie: `stick=${first.value}` }).found, "backend 1");
});

test("replicas agree, and routes, keys, and backends with the same servers do not share tokens", () => {
  const token = (setup: Setup): string => setUp(setup)({}).value;
  const own = token({});
  assert.equal(token({}), own);
  assert.notEqual(token({ route: routeTo(() => ADDRESSES, "other") }), own);
  assert.notEqual(token({ config: { key: "k" } }), own);
  const { backends, ...rest } = routeTo(() => ADDRESSES);
  const twice = { ...rest, backends: [...backends.slice(0, 1), ...backends] };
  assert.equal(setUp({ route: twice })({}).value, own);
  const second = setUp({ route: twice })({}, ADDRESSES[0], 1).value;
  assert.notEqual(second, own);
});

const valid = setUp()({}, ADDRESSES[2]).value;
const foreign = setUp({ route: routeTo(() => ADDRESSES, "other") })({}).value;
const forged = "A".repeat(22);
const COOKIES: [what: string, cookie: string, found: string | undefined][] = [
  ["a valid token", `stick=${valid}`, ADDRESSES[2]],
  ["a forged token", `stick=${forged}`, undefined],
  ["an address", "stick=10.0.0.3:80", undefined],
  ["a truncated token", `stick=${valid.slice(0, -1)}`, undefined],
  ["an extended token", `stick=${valid}A`, undefined],
  ["another case", `stick=${valid.toLowerCase()}A`, undefined],
  ["the token of another route", `stick=${foreign}`, undefined],
  ["two cookies, the valid one last", `stick=${forged}; stick=${valid}`, ADDRESSES[2]],
  ["two cookies, the valid one first", `stick=${valid}; stick=${forged}`, ADDRESSES[2]],
  ["the name of another cookie", `stick2=${valid}; xstick=${valid}`, undefined],
  ["a huge value", `stick=${"A".repeat(60_000)}`, undefined],
  ["many cookies", `${`stick=${forged}; `.repeat(2_000)}stick=${valid}`, undefined],
  ["an empty value", "stick=", undefined],
  ["no value", "stick", undefined],
  ["a property name", "stick=__proto__", undefined],
  ["control characters", `stick=${valid}\t`, ADDRESSES[2]],
  ["quotes", `stick="${valid}"`, undefined],
  ["times that are not configured", `stick=${valid}.zzzz.zzzz`, ADDRESSES[2]],
];
for (const [what, cookie, found] of COOKIES)
  test(`${what}: ${found === undefined ? "a new session starts" : "the session continues"}`, () => {
    const answer = setUp()({ cookie });
    assert.equal(answer.found, found);
    assert.equal(answer.cookie === undefined, found !== undefined);
  });

test("a session whose server is gone starts again with another", () => {
  let addresses = ADDRESSES;
  const send = setUp({ route: routeTo(() => addresses) });
  const { value } = send({}, ADDRESSES[0]);
  addresses = ADDRESSES.slice(1);
  const moved = send({ cookie: `stick=${value}` }, ADDRESSES[1]);
  assert.equal(moved.found, undefined);
  assert.equal(send({ cookie: `stick=${moved.value}` }).found, ADDRESSES[1]);
});

test("a session ends after its absolute timeout, whose start the client's requests do not change", async () => {
  const clock = fakeClock();
  const send = setUp({ config: { absoluteTimeout: "10m" }, clock });
  const { value, cookie } = send({}, ADDRESSES[1]);
  assert.doesNotMatch(cookie ?? "", /max-age|expires/i);
  await clock.advance(9 * 60_000);
  assert.deepEqual(send({ cookie: `stick=${value}` }).cookie, undefined);
  await clock.advance(60_000);
  const next = send({ cookie: `stick=${value}` });
  assert.equal(next.found, undefined);
  assert.notEqual(next.value, value);
  assert.equal(send({ cookie: `stick=${value.slice(0, 22)}` }).found, undefined, "a token without times");
  const far = (clock.now() + 3_600_000).toString(36);
  assert.equal(send({ cookie: `stick=${value.slice(0, 22)}.${far}.${far}` }).found, undefined, "a time in the future");
});

test("an idle session ends, and requests extend it", async () => {
  const clock = fakeClock();
  const send = setUp({ config: { idleTimeout: "10m", absoluteTimeout: "25m" }, clock });
  let { value } = send({}, ADDRESSES[1]);
  await clock.advance(30_000);
  assert.equal(send({ cookie: `stick=${value}` }).cookie, undefined, "not in every response");
  for (const minutes of [9, 9]) {
    await clock.advance(minutes * 60_000);
    const answer = send({ cookie: `stick=${value}` });
    assert.equal(answer.found, ADDRESSES[1]);
    value = answer.value;
  }
  await clock.advance(9 * 60_000);
  assert.equal(send({ cookie: `stick=${value}` }).found, undefined, "the absolute timeout still applies");
  ({ value } = send({}, ADDRESSES[1]));
  await clock.advance(10 * 60_000);
  assert.equal(send({ cookie: `stick=${value}` }).found, undefined);
});

test("a permanent cookie has the rest of the timeout as its Max-Age", async () => {
  const clock = fakeClock();
  const config = { lifetime: "permanent", absoluteTimeout: "5m", idleTimeout: "2m" };
  const send = setUp({ config, clock });
  const { value, cookie } = send({}, ADDRESSES[1]);
  assert.match(cookie ?? "", /; Max-Age=300;/);
  await clock.advance(60_000);
  assert.match(send({ cookie: `stick=${value}` }).cookie ?? "", /; Max-Age=240;/);
});

test("a header carries the token in both directions", () => {
  const send = setUp({ config: { type: "header" } });
  const { value, cookie } = send({}, ADDRESSES[1]);
  assert.equal(cookie, undefined);
  assert.equal(send({ stick: value }).found, ADDRESSES[1]);
  assert.equal(send({ stick: "x".repeat(5_000) }).found, undefined);
  assert.equal(send({ cookie: `stick=${value}` }).found, undefined);
});

test("responses of the gateway itself start no session", () => {
  const hooks = sessionPersistence.compile(sessionPersistence.schema.parse({}), testEnv);
  const exchange = anAnsweredExchange();
  exchange.response = { ...exchange.response, source: "gateway" } as NonNullable<typeof exchange.response>;
  void hooks.shape?.head?.(exchange);
  hooks.settings?.sessions?.find(
    exchange,
    routeTo(() => ADDRESSES),
  );
  exchange.upstream.backendIndex = 0;
  exchange.upstream.endpoint = ADDRESSES[0];
  void hooks.response?.head(exchange);
  assert.equal(exchange.response.headers.get("set-cookie"), undefined);
});

for (const config of [
  { name: "a b" },
  { name: "a;b" },
  { name: "" },
  { name: "a".repeat(129) },
  { name: "__Host-a" },
  { type: "header", name: "cookie" },
  { type: "header", name: "Content-Length" },
  { type: "header", name: "Host" },
  { type: "query" },
  { lifetime: "permanent" },
  { lifetime: "permanent", type: "header", absoluteTimeout: "1m" },
  { absoluteTimeout: "0s" },
  { idleTimeout: "soon" },
  { key: "" },
])
  test(`rejects the config ${JSON.stringify(config).slice(0, 80)}`, () => {
    assert.equal(sessionPersistence.schema.safeParse(config).success, false);
  });
