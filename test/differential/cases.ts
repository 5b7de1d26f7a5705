/**
 * Requests close to those that the rules of the differential test deny, in other spellings. A new source of spellings
 * (headers, bodies) is one more function here.
 */

import { respelled } from "../support/path-spellings.ts";
import type { Random } from "../support/random.ts";
import type { BackendName, Reading } from "./backends.ts";

export interface DifferentialCase {
  readonly method: string;
  readonly target: string;
  readonly host: string;
  /** Lines without their ends. */
  readonly headers: readonly string[];
  readonly body: Buffer | undefined;
}

/** What the configuration denies, and the same rule over what a backend read. */
export const RULES: readonly { readonly deny: string; denies(reading: Reading): boolean }[] = [
  { deny: 'request.path == "/pr/secret"', denies: ({ path }) => path === "/pr/secret" },
  { deny: 'request.path.startsWith("/adm/")', denies: ({ path }) => path.startsWith("/adm/") },
  { deny: 'request.method == "DELETE"', denies: ({ method }) => method === "DELETE" },
  { deny: 'request.host == "secret.test"', denies: ({ host }) => host === "secret.test" },
  { deny: 'request.pathAndQuery.contains("?role=admin")', denies: ({ query }) => query.startsWith("role=admin") },
  {
    deny: '"x-role" in request.headers && request.headers["x-role"] == "admin"',
    denies: ({ role }) => role === "admin",
  },
  {
    deny: 'has(llm.requestModel) && llm.requestModel == "forbidden"',
    denies: ({ model }) => model === "forbidden",
  },
];

/** Differences that the documentation names; each is as narrow as it can be. */
export const KNOWN: readonly {
  readonly what: string;
  readonly verdict: "allowed" | "denied";
  readonly backends: readonly BackendName[];
  applies(one: DifferentialCase): boolean;
}[] = [
  {
    what: "a repeated header is one joined value for rules and its first line for the backend",
    verdict: "allowed",
    backends: ["go"],
    applies: ({ headers }) => headers.filter((line) => /^x-role:/i.test(line)).length > 1,
  },
  {
    what: "a header with underscores is another header for rules and the same one for the backend",
    verdict: "allowed",
    backends: ["python"],
    applies: ({ headers }) => headers.some((line) => /^x_role:/i.test(line)),
  },
  {
    what: "a header with underscores joins the one that rules read",
    verdict: "denied",
    backends: ["python"],
    applies: ({ headers }) => headers.some((line) => /^x_role/i.test(line)),
  },
  {
    what: "rules also read a model behind a byte order mark, or under a key in another case",
    verdict: "denied",
    backends: ["node", "python", "go"],
    applies: ({ body }) => /^\u00ef\u00bb\u00bf|"Model"/.test(body?.toString("latin1") ?? ""),
  },
  {
    what: "rules also read models in a list, in a nested member and in a form: a server may use any of them",
    verdict: "denied",
    backends: ["node", "python", "go"],
    applies: ({ body }) => /^\s*\[|"a":\{"model"|"model":\[|^model=/.test(body?.toString("latin1") ?? ""),
  },
];

const PATHS = ["/pr/secret", "/pr/secret", "/adm/users", "/adm", "/pr/public", "/", "/v1/chat/completions", "/a:b/c@d"];
const ODD = [
  ";x", "%3Bx", "%2F", "%5C", "%252f", "%2573", "%20", "%09", "%00", ".", "..", "/.", "/..", "%2e", "%252e", "%3F", "%23", "%3A", "%c0%af", "%C3%A9",
  "%E9", "\\", "|", "[0]", "%7F", "~", "%25", "%",
]; // biome-ignore format: a table

export function targetOf(random: Random): string {
  let path = respelled(random.pick(PATHS), random);
  for (let more = random.oneIn(3) ? 1 + random.int(2) : 0; more > 0; more--) {
    const at = 1 + random.int(path.length);
    path = path.slice(0, at) + random.pick(ODD) + path.slice(at);
  }
  const query = random.oneIn(3)
    ? random.pick(["role=admin", "ROLE=admin", "x&role=admin", "role=%61dmin", "", "role=admin&x"])
    : undefined;
  const target = query === undefined ? path : `${path}?${query}`;
  return random.oneIn(20) ? `http://secret.test${target}` : target;
}

const HEADERS = [
  "x-role: admin", "X-Role: admin", "x-role:admin", "x-role: \tadmin ", "x-role: user", "x-role: Admin", "x_role: admin", "X_Role: admin",
  "x-role : admin", "x-user: admin", "X-USER: admin", "x_user: admin", "x-other: 1", "x-role: admin, user", "connection: x-role",
  "connection: keep-alive, x-user",
]; // biome-ignore format: a table

const HOSTS = [
  "a.test",
  "a.test",
  "a.test",
  "secret.test",
  "SECRET.test",
  "secret.test:80",
  "secret.test.",
  "secret.test, a.test",
];

const BODIES = [
  '{"model":"forbidden"}', '{"model":"allowed"}', '{"messages":[],"model":"forbidden"}', '{"m\\u006fdel":"forbidden"}', '{"model":"forb\\u0069dden"}',
  '{"model":"allowed","model":"forbidden"}', '{"model":"forbidden","model":"allowed"}', '{"Model":"forbidden"}', '{"model":"allowed","Model":"forbidden"}',
  ' \n{"model" : "forbidden"}', '[{"model":"forbidden"}]', '{"model":["forbidden"]}', '{"model":null}', '{"a":{"model":"forbidden"}}', '{"model":"forbidden"',
  '{"model":"forbidden"}x', "model=forbidden",
]; // biome-ignore format: a table

const ENCODINGS: readonly ((text: string) => Buffer)[] = [
  (text) => Buffer.from(text),
  (text) => Buffer.from(text),
  (text) => Buffer.from(`\uFEFF${text}`),
  (text) => Buffer.from(text, "utf16le"),
  (text) => Buffer.from(`\uFEFF${text}`, "utf16le"),
  (text) => Buffer.from(text, "utf16le").swap16(),
  (text) => Buffer.from(`\uFEFF${text}`, "utf16le").swap16(),
  (text) => Buffer.from([...text].flatMap((one) => [one.charCodeAt(0), 0, 0, 0])),
];

export function differentialCase(random: Random): DifferentialCase {
  const body = random.oneIn(3) ? random.pick(ENCODINGS)(random.pick(BODIES)) : undefined;
  const type = random.pick(["application/json", "application/json; charset=utf-16", "text/plain"]);
  return {
    method:
      body === undefined
        ? random.pick(["GET", "GET", "GET", "DELETE", "HEAD", "OPTIONS"])
        : random.pick(["POST", "POST", "PUT"]),
    target: body !== undefined && random.oneIn(2) ? "/v1/chat/completions" : targetOf(random),
    host: random.pick(HOSTS),
    headers: [
      ...(random.oneIn(2) ? random.list(3, () => random.pick(HEADERS)) : []),
      ...(body === undefined ? [] : [`content-type: ${type}`]),
    ],
    body,
  };
}

export function bytesOf({ method, target, host, headers, body }: DifferentialCase): Buffer {
  const length = body === undefined ? [] : [`content-length: ${body.length}`];
  const head = [`${method} ${target} HTTP/1.1`, `host: ${host}`, ...headers, ...length].join("\r\n");
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`, "latin1"), body ?? Buffer.alloc(0)]);
}
