import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import { requestRedirect } from "./policy.ts";

const cases: [
  config: object,
  request: { host?: string; path?: string; query?: string },
  status: number,
  location: string,
][] = [
  [{ scheme: "https" }, { path: "/a", query: "b=1" }, 302, "https://gateway.test/a?b=1"],
  [{ scheme: "https", status: 308 }, {}, 308, "https://gateway.test/"],
  [{ scheme: "https" }, { host: "gateway.test:8080" }, 302, "https://gateway.test/"],
  [{ status: 301 }, { host: "gateway.test:8080", path: "/x" }, 301, "http://gateway.test:8080/x"],
  [{ scheme: "https", authority: "new.test:8443" }, { host: "old.test:80" }, 302, "https://new.test:8443/"],
  [{ port: 8083 }, { host: "gateway.test", path: "/x" }, 302, "http://gateway.test:8083/x"],
  [{ port: 8083 }, { host: "[::1]:80", path: "/x" }, 302, "http://[::1]:8083/x"],
  [{ port: 80 }, { host: "gateway.test:8080" }, 302, "http://gateway.test/"],
  [{ scheme: "https", port: 443 }, { host: "gateway.test:8080" }, 302, "https://gateway.test/"],
  [{ scheme: "https", port: 80 }, { host: "gateway.test" }, 302, "https://gateway.test:80/"],
  [{ port: 81 }, { host: "" }, 302, "/"],
  [{ path: { full: "/new" } }, { path: "/api/x", query: "a" }, 302, "http://gateway.test/new?a"],
  [{ path: { prefix: "/new" } }, { path: "/api/x" }, 302, "http://gateway.test/new/x"],
  [{ path: { prefix: "/" } }, { path: "/api//evil.test/x" }, 302, "http://gateway.test/evil.test/x"],
  [{ scheme: "https" }, { path: "//evil.test" }, 302, "https://gateway.test/evil.test"],
  [{ scheme: "https" }, { path: "/%0d%0aset-cookie:a=b" }, 302, "https://gateway.test/%0D%0Aset-cookie:a=b"],
  [{ scheme: "https" }, { host: "", path: "/x" }, 302, "/x"],
  [{ scheme: "https" }, { host: "", path: "//evil.test" }, 302, "/evil.test"],
];
for (const [config, request, status, location] of cases) {
  test(`${JSON.stringify(config)} sends ${JSON.stringify(request)} to ${location} [L13]`, () => {
    const hooks = requestRedirect.compile(requestRedirect.schema.parse(config), {
      ...testEnv,
      matchedPrefixes: ["/api"],
    });
    const reply = hooks.shape?.head?.(anExchange(request)) as Reply;
    assert.equal(reply.status, status);
    assert.equal(reply.headers.get("location"), location);
    assert.equal(reply.body, undefined);
  });
}

for (const config of [
  { status: 200 },
  { status: 304 },
  { scheme: "ftp" },
  { authority: "a/b" },
  { authority: "" },
  { to: "x" },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(requestRedirect.schema.safeParse(config).success, false);
  });
}
