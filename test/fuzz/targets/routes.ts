/**
 * Which route takes a request: a slow reading of the precedence (host, exact path, longest prefix, regex, method, headers,
 * query, order) finds the same; and a rewrite loses nothing behind the prefix.
 */
import type { GatewayRequest } from "../../../src/core/exchange.ts";
import type { Route, RouteMatch } from "../../../src/core/topology.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { canonicalPath } from "../../../src/http/request-path.ts";
import { createRouteTable } from "../../../src/pipeline/route/match-route.ts";
import { pathChange } from "../../../src/policy-parts/path-change.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

type Written = {
  readonly host: string;
  readonly kind: number;
  readonly path: string;
  readonly method: string;
  readonly header: string;
  readonly query: string;
};
type Input = {
  readonly routes: readonly Written[];
  readonly host: string;
  readonly path: string;
  readonly method: string;
  readonly header: string;
  readonly query: string;
};

const REGEXES = ["/a.*", "/[ab]+", "/a/.", ".*b"];

const kindOf = ({ kind }: Written): number => Math.abs(Math.trunc(kind)) % 3;

function matchOf(written: Written): RouteMatch {
  const path =
    kindOf(written) === 0
      ? { exact: written.path }
      : kindOf(written) === 1
        ? { pathPrefix: written.path }
        : { regex: REGEXES[written.path.length % REGEXES.length] as string };
  return {
    path,
    ...(written.method === "" ? {} : { method: written.method }),
    ...(written.header === "" ? {} : { headers: [{ name: "x-a", exact: written.header }] }),
    ...(written.query === "" ? {} : { query: [{ name: "q", exact: written.query }] }),
  };
}

/** Undefined if it does not match, else how specific it is: a list that is compared from the left. */
function rankOf(written: Written, input: Input, path: string): number[] | undefined {
  const host = input.host.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, "");
  const pattern = (written.host === "" ? "*" : written.host).toLowerCase();
  const hostFits =
    pattern === "*" ||
    (pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) && host.length > pattern.length - 1 : host === pattern);
  const match = matchOf(written);
  const prefix = written.path.replace(/\/+$/, "");
  const fits =
    "exact" in match.path
      ? path === written.path
      : "regex" in match.path
        ? new RegExp(`^(?:${match.path.regex})$`).test(path)
        : `${path}/`.startsWith(`${prefix}/`);
  if (!hostFits || !fits) return undefined;
  if (written.method !== "" && written.method !== input.method) return undefined;
  if (written.header !== "" && written.header !== input.header) return undefined;
  if (written.query !== "" && written.query !== input.query) return undefined;
  return [
    pattern === "*" ? 0 : pattern.startsWith("*.") ? 1 : 2,
    pattern.length,
    2 - kindOf(written),
    "regex" in match.path ? match.path.regex.length : "exact" in match.path ? written.path.length : prefix.length,
    written.method === "" ? 0 : 1,
    written.header === "" ? 0 : 1,
    written.query === "" ? 0 : 1,
  ];
}

function reference(input: Input, path: string): number | undefined {
  let best: { index: number; rank: number[] } | undefined;
  for (const [index, written] of input.routes.entries()) {
    const rank = rankOf(written, input, path);
    if (rank === undefined) continue;
    const difference =
      best === undefined ? 1 : (rank.map((one, i) => one - (best?.rank[i] as number)).find((one) => one !== 0) ?? 0);
    if (difference > 0) best = { index, rank };
  }
  return best?.index;
}

const HOSTS = ["", "*", "a.example", "*.example", "b.a.example", "*.a.example", "A.Example"];
const PATHS = [
  "/",
  "/a",
  "/a/",
  "/a/b",
  "/a/b/c",
  "/ab",
  "/b",
  "/%61",
  "//a",
  "/a//b",
  "/a%2Fb",
  "/%41",
  "/a/%2e",
  "/~a",
  "/%7ea",
];

function generate(random: Random): Input {
  const some = (values: readonly string[]): string => (random.oneIn(3) ? random.pick(values) : "");
  return {
    routes: random.list(6, () => ({
      host: some(HOSTS),
      kind: random.int(3),
      path: random.pick(["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b"]),
      method: some(["GET", "POST"]),
      header: some(["1", "2"]),
      query: some(["1", "2"]),
    })),
    host: random.pick(["a.example", "b.a.example", "x", "A.EXAMPLE:80", "a.example.", "example", ".example"]),
    path: random.oneIn(3)
      ? `/${random.text(["a", "b", "/", "%61", "%2F", "//", "%", "%zz", ".", "%2e"], 6)}`
      : random.pick(PATHS),
    method: random.pick(["GET", "POST", "PUT"]),
    header: some(["1", "2", "3"]),
    query: some(["1", "2", "3"]),
  };
}

export const routes = defineTarget<Input>({
  name: "routes",
  seeds: [
    {
      routes: [
        { host: "", kind: 1, path: "/a", method: "", header: "", query: "" },
        { host: "a.example", kind: 0, path: "/a/b", method: "GET", header: "", query: "" },
      ],
      host: "a.example",
      path: "/a/b",
      method: "GET",
      header: "",
      query: "",
    },
  ],
  smokeCases: 2_500,
  generate,
  run(input) {
    if (!input.path.startsWith("/") || input.routes.some(({ path }) => !path.startsWith("/"))) return "no path";
    if (!/^[\w.-]+(?::\d{1,5})?$/.test(input.host)) return "no host";
    // The edge refuses these, or Node's parser does.
    if (/[^\x21-\x7e]/.test(input.path) || /%(?![0-9a-f]{2})/i.test(input.path)) return "an incomplete encoding";
    if (Buffer.from(input.query).toString() !== input.query) return "no text";
    const path = canonicalPath(input.path);
    const table = createRouteTable(
      input.routes.map(
        (one, i) =>
          ({
            name: String(i),
            hostnames: one.host === "" ? [] : [one.host],
            matches: [matchOf(one)],
          }) as unknown as Route,
      ),
    );
    const request = {
      method: input.method,
      host: input.host,
      path,
      query: input.query === "" ? "" : `q=${encodeURIComponent(input.query)}`,
      headers: new HeaderList(input.header === "" ? [] : ["x-a", input.header]),
    } as unknown as GatewayRequest;
    const found = table.match(request)?.name;
    expectSame(found === undefined ? undefined : Number(found), reference(input, path), "the route");
    if (found !== undefined) checkRewrite(input.routes[Number(found)] as Written, path);
    return `${found} ${input.routes.length} ${path === input.path}`;
  },
});

/** The rest behind a matched prefix is neither lost nor repeated. */
function checkRewrite(written: Written, path: string): void {
  if (kindOf(written) !== 1) return;
  const rewritten = pathChange.compile({ prefix: "/new" }, [written.path])(path);
  const rest = path.slice(written.path.replace(/\/+$/, "").length);
  expect(rewritten.startsWith("/new"), "the new prefix");
  expectSame(rewritten, `/new${rest}`, "the rewritten path");
}
