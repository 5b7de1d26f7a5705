import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import { urlRewrite } from "./policy.ts";

const paths: [change: object, prefixes: string[], path: string, sent: string][] = [
  [{ full: "/new" }, ["/"], "/old/x", "/new"],
  [{ prefix: "/new" }, ["/api"], "/api/x", "/new/x"],
  [{ prefix: "/new/" }, ["/api/"], "/api/x", "/new/x"],
  [{ prefix: "/new" }, ["/api"], "/api", "/new"],
  [{ prefix: "/" }, ["/api"], "/api/x", "/x"],
  [{ prefix: "/" }, ["/api"], "/api", "/"],
  [{ prefix: "/new" }, ["/"], "/x", "/new/x"],
  [{ prefix: "/new" }, ["/api", "/api/v1"], "/api/v1/x", "/new/x"],
  [{ prefix: "/new" }, ["/api"], "//api//x", "/new/x"],
  [{ prefix: "/new" }, ["/api"], "/%61pi/x%2Fy", "/new/x%2Fy"],
  [{ prefix: "/new" }, ["/api"], "/api/%41", "/new/A"],
];
for (const [change, prefixes, path, sent] of paths) {
  test(`${JSON.stringify(change)} on ${prefixes.join(" or ")} turns ${path} into ${sent}`, () => {
    const exchange = anExchange({ path, query: "a=1" });
    const hooks = urlRewrite.compile(urlRewrite.schema.parse({ path: change }), {
      ...testEnv,
      matchedPrefixes: prefixes,
    });
    assert.equal(hooks.shape?.head?.(exchange), undefined);
    assert.equal(exchange.request.path, sent);
    assert.equal(exchange.request.query, "a=1", "the query is kept");
    assert.equal(exchange.request.host, "gateway.test", "and the authority");
  });
}

test("replaces the authority and remembers the original one", () => {
  const exchange = anExchange({ path: "/x" });
  void urlRewrite.compile({ authority: "inner.test:81" }, testEnv).shape?.head?.(exchange);
  assert.equal(exchange.request.host, "inner.test:81");
  assert.equal(exchange.request.path, "/x");
  assert.equal(exchange.originalHost, "gateway.test");
});

for (const config of [
  { path: { full: "new" } },
  { path: { full: "/a?b=1" } },
  { path: { full: "/a", prefix: "/b" } },
  { path: {} },
  { authority: "a/b" },
  { authority: "a b" },
  { authority: "user@host" },
  { authority: "a:b:c" },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(urlRewrite.schema.safeParse(config).success, false);
  });
}
