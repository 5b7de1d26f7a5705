import assert from "node:assert/strict";
import { test } from "node:test";
import { cookiePath } from "./cookie-path.ts";

type Path = { exact?: string; pathPrefix?: string; regex?: string };

const cases: [matches: Path[], request: string, path: string][] = [
  [[{ pathPrefix: "/" }], "/a/b", "/"],
  [[{ pathPrefix: "/shop" }], "/shop/cart", "/shop"],
  [[{ pathPrefix: "/shop/" }], "/shop", "/shop"],
  [[{ exact: "/login" }], "/login", "/login"],
  [[{ exact: "/login" }, { pathPrefix: "/shop" }], "/shop/1", "/shop"],
  [[{ pathPrefix: "/a" }, { pathPrefix: "/a/b" }], "/a/b/c", "/a/b"],
  [[{ pathPrefix: "/a" }, { pathPrefix: "/a/b" }], "/a/c", "/a"],
  [[{ regex: "/p1/p2/[^/]*/p3" }], "/p1/p2/foo/p3", "/p1/p2"],
  [[{ regex: "/p1/p2(a|b)" }], "/p1/p2a", "/p1"],
  [[{ regex: "^/p1/p2" }], "/p1/p2", "/p1/p2"],
  [[{ regex: "/a/b|/c/d" }], "/c/d", "/"],
  [[{ regex: ".*" }], "/a", "/"],
  [[{ regex: "/ab?c" }], "/ac", "/"],
  [[{ pathPrefix: "/a;b" }], "/a;b/c", "/"],
  [[{ pathPrefix: "/%C3%A4" }], "/%C3%A4/c", "/"],
];
for (const [matches, request, path] of cases)
  test(`the cookie for ${request} of a route with ${JSON.stringify(matches)} has the path ${path}`, () => {
    assert.equal(cookiePath({ matches: matches.map((one) => ({ path: one })) }, request), path);
  });
