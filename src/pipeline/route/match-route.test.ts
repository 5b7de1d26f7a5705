import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { anExchange } from "../../../test/support/exchange.ts";
import type { Route, RouteMatch } from "../../core/topology.ts";
import { HeaderList } from "../../http/headers.ts";
import { createRouteTable } from "./match-route.ts";

function route(name: string, matches: RouteMatch[], hostnames: string[] = []): Route {
  return { name, matches, hostnames } as unknown as Route;
}
const exact = (path: string, more: Partial<RouteMatch> = {}): RouteMatch => ({ path: { exact: path }, ...more });
const prefix = (path: string, more: Partial<RouteMatch> = {}): RouteMatch => ({ path: { pathPrefix: path }, ...more });
const regex = (source: string): RouteMatch => ({ path: { regex: source } });

type Ask = { method?: string; path?: string; host?: string; query?: string; headers?: Record<string, string> };

function chosen(routes: Route[], ask: Ask): string | undefined {
  const { request } = anExchange(ask);
  return createRouteTable(routes).match(request, request.path)?.name;
}

const single: [name: string, match: RouteMatch, ask: Ask, fits: boolean][] = [
  ["an exact path", exact("/a"), { path: "/a" }, true],
  ["an exact path is the whole path", exact("/a"), { path: "/a/" }, false],
  ["a prefix takes itself", prefix("/a"), { path: "/a" }, true],
  ["a prefix takes what is below", prefix("/a"), { path: "/a/b" }, true],
  ["a prefix ends at a segment", prefix("/a"), { path: "/ab" }, false],
  ["a slash at the end of a prefix means nothing", prefix("/a/"), { path: "/a" }, true],
  ["the prefix / takes everything", prefix("/"), { path: "/x/y" }, true],
  ["paths are compared with their case", prefix("/a"), { path: "/A" }, false],
  ["a regex must take the whole path", regex("/a[0-9]+"), { path: "/a12" }, true],
  ["and no part of it", regex("/a[0-9]+"), { path: "/a12/x" }, false],
  ["alternatives stay inside of it", regex("/a|/b"), { path: "/bc" }, false],
  ["a method", exact("/", { method: "POST" }), { method: "POST" }, true],
  ["another method", exact("/", { method: "POST" }), { method: "GET" }, false],
  [
    "a header, its name in any case",
    exact("/", { headers: [{ name: "X-A", exact: "1" }] }),
    { headers: { "x-a": "1" } },
    true,
  ],
  [
    "another value of a header",
    exact("/", { headers: [{ name: "x-a", exact: "1" }] }),
    { headers: { "x-a": "12" } },
    false,
  ],
  ["a header that is absent", exact("/", { headers: [{ name: "x-a", regex: ".*" }] }), {}, false],
  [
    "all headers must fit",
    exact("/", {
      headers: [
        { name: "a", exact: "1" },
        { name: "b", exact: "2" },
      ],
    }),
    { headers: { a: "1" } },
    false,
  ],
  ["a query parameter, decoded", exact("/", { query: [{ name: "q", exact: "a b" }] }), { query: "x=1&q=a+b" }, true],
  ["a query parameter by regex", exact("/", { query: [{ name: "q", regex: "[0-9]+" }] }), { query: "q=12" }, true],
  ["a query parameter that is absent", exact("/", { query: [{ name: "q", exact: "1" }] }), { query: "qq=1" }, false],
];
for (const [name, match, ask, fits] of single) {
  test(`matching: ${name}`, () => {
    assert.equal(chosen([route("it", [match])], ask), fits ? "it" : undefined);
  });
}

const hosts: [hostname: string, host: string, fits: boolean][] = [
  ["example.com", "example.com", true],
  ["example.com", "EXAMPLE.com:8080", true],
  ["Example.com", "example.com", true],
  ["example.com", "example.com.", true],
  ["example.com", "www.example.com", false],
  ["*.example.com", "www.example.com", true],
  ["*.example.com", "a.b.example.com", true],
  ["*.example.com", "example.com", false],
  ["*.example.com", "evilexample.com", false],
  ["[::1]", "[::1]:3000", true],
  ["*", "anything", true],
];
for (const [hostname, host, fits] of hosts) {
  test(`the host name ${hostname} ${fits ? "takes" : "does not take"} ${host}`, () => {
    assert.equal(chosen([route("it", [prefix("/")], [hostname])], { host }), fits ? "it" : undefined);
  });
}

const precedence: [name: string, winner: Route, loser: Route, ask: Ask][] = [
  [
    "an exact host name over a wildcard",
    route("w", [prefix("/")], ["a.example.com"]),
    route("l", [exact("/x")], ["*.example.com"]),
    { host: "a.example.com", path: "/x" },
  ],
  [
    "a longer wildcard over a shorter one",
    route("w", [prefix("/")], ["*.b.example.com"]),
    route("l", [exact("/x")], ["*.example.com"]),
    { host: "a.b.example.com", path: "/x" },
  ],
  [
    "a wildcard over any host",
    route("w", [prefix("/")], ["*.example.com"]),
    route("l", [exact("/x")]),
    { host: "a.example.com", path: "/x" },
  ],
  ["an exact path over a prefix", route("w", [exact("/a/b")]), route("l", [prefix("/a/b")]), { path: "/a/b" }],
  [
    "a longer prefix over a shorter one",
    route("w", [prefix("/a/b")]),
    route("l", [prefix("/a", { method: "GET" })]),
    { path: "/a/b/c" },
  ],
  ["a prefix over a regex", route("w", [prefix("/a")]), route("l", [regex("/a/.*")]), { path: "/a/b" }],
  [
    "a method over none",
    route("w", [prefix("/", { method: "GET" })]),
    route("l", [prefix("/", { headers: [{ name: "a", exact: "1" }] })]),
    { headers: { a: "1" } },
  ],
  [
    "more headers over fewer",
    route("w", [prefix("/", { headers: [{ name: "a", exact: "1" }] })]),
    route("l", [prefix("/", { query: [{ name: "q", exact: "1" }] })]),
    { headers: { a: "1" }, query: "q=1" },
  ],
  [
    "more query conditions over fewer",
    route("w", [prefix("/", { query: [{ name: "q", exact: "1" }] })]),
    route("l", [prefix("/")]),
    { query: "q=1" },
  ],
];
for (const [name, winner, loser, ask] of precedence) {
  test(`precedence: ${name}, whatever the order`, () => {
    assert.equal(chosen([winner, loser], ask), "w");
    assert.equal(chosen([loser, winner], ask), "w");
  });
}

test("precedence: the order in the file decides last", () => {
  assert.equal(chosen([route("first", [prefix("/")]), route("second", [prefix("/")])], {}), "first");
});

test("a preflight matches the route of the method that it announces", () => {
  const routes = [route("put", [prefix("/", { method: "PUT" })]), route("get", [prefix("/", { method: "GET" })])];
  assert.equal(chosen(routes, { method: "OPTIONS", headers: { "access-control-request-method": "GET" } }), "get");
  assert.equal(chosen(routes, { method: "OPTIONS" }), undefined);
});

test("a hostile path costs no more time than its length [V10]", () => {
  const table = createRouteTable([route("it", [regex("/(a+)+$")])]);
  const { request } = anExchange({ path: `/${"a".repeat(5_000)}!` });
  assertCpuBelow(500, () => assert.equal(table.match(request, request.path), undefined));
});

const BY_TENANT = [
  route("protected", [prefix("/", { headers: [{ name: "X-Tenant", exact: "blue" }] })]),
  route("longer", [prefix("/open/longer")]),
  route("by-query", [prefix("/", { query: [{ name: "tenant", exact: "blue" }] })]),
  route("open", [prefix("/")]),
];

function chosenFor(lines: readonly string[], query = "", path = "/"): string | undefined {
  const { request } = anExchange({ query, path });
  request.headers = new HeaderList([...lines]);
  try {
    return createRouteTable(BY_TENANT).match(request, path)?.name;
  } catch (error) {
    return (error as Error).message;
  }
}

const REPEATED = "bad request: the header x-tenant, which chooses the route, is repeated or has another spelling";
const REPEATED_QUERY = "bad request: the query parameter tenant, which chooses the route, is repeated";
for (const [name, lines, query, path, expected] of [
  ["one line", ["x-tenant", "blue"], "", "/", "protected"],
  ["another value", ["x-tenant", "x"], "", "/", "open"],
  ["two lines, the first fits", ["x-tenant", "blue", "x-tenant", "x"], "", "/", REPEATED],
  ["two lines, the last fits", ["x-tenant", "x", "x-tenant", "blue"], "", "/", REPEATED],
  ["two equal lines", ["x-tenant", "blue", "x-tenant", "blue"], "", "/", REPEATED],
  ["an underscore alone", ["x_tenant", "blue"], "", "/", REPEATED],
  ["an underscore beside it", ["x-tenant", "x", "x_tenant", "blue"], "", "/", REPEATED],
  ["a repeated header that decides nothing", ["x-other", "1", "x-other", "2"], "", "/", "open"],
  ["a route that does not depend on it", ["x_tenant", "blue"], "", "/open/longer", "longer"],
  ["one parameter", [], "tenant=blue", "/", "by-query"],
  ["two parameters", [], "tenant=x&a=1&tenant=blue", "/", REPEATED_QUERY],
  ["an encoded second parameter", [], "tenant=x&%74enant=blue", "/", REPEATED_QUERY],
] as const) {
  test(`routes by header or query: ${name} [L19]`, () => {
    assert.equal(chosenFor(lines, query, path), expected);
  });
}

test("a request on the open route has no header that a backend could read as the protected one [L19]", () => {
  const spelling = fc.constantFrom("x-tenant", "x-tenant", "x_tenant", "x.tenant", "x-tenants", "y-tenant");
  const lines = fc.array(fc.tuple(spelling, fc.constantFrom("blue", "blue", "red", "", "blue, red")), {
    maxLength: 4,
    size: "max",
  });
  const outcomes = new Map<string | undefined, number>();
  fc.assert(
    fc.property(lines, (all) => {
      const found = chosenFor(all.flat());
      outcomes.set(found, (outcomes.get(found) ?? 0) + 1);
      const same = all.filter(([name]) => /^x[^a-z0-9]tenant$/.test(name));
      // Backends may read the first value, the last one, or all joined, under any spelling.
      const readings = [same[0]?.[1], same.at(-1)?.[1], same.map(([, value]) => value).join(",")];
      if (found === "open") assert.ok(!readings.includes("blue"), JSON.stringify(all));
      if (found === "protected")
        assert.ok(
          readings.every((value) => value === "blue"),
          JSON.stringify(all),
        );
    }),
    { seed: Number(process.env.FAST_CHECK_SEED ?? 1), numRuns: 500 },
  );
  for (const one of ["open", "protected", REPEATED]) assert.ok((outcomes.get(one) ?? 0) > 10, `${one} happens`);
});
