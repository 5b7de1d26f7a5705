import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { pathSegment } from "./path-segment.ts";

const BASE = "http://api.test/a/b/";

test("a name is one segment below its folder, or refused [V8]", () => {
  const parts = fc.constantFrom(".", "..", "/", "\\", "%2e", "%2f", "?", "#", ":", "a", "\r\n", "\ud800", "é", " ");
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(parts, { minLength: 1 }).map((all) => all.join("")),
      ),
      (name) => {
        const segment = pathSegment(name);
        if (segment === undefined) {
          assert.ok(name === "." || name === ".." || /\p{Surrogate}/u.test(name), JSON.stringify(name));
          return;
        }
        const url = new URL(`${BASE}${segment}/end`);
        assert.equal(`${url.pathname}${url.search}${url.hash}`, `/a/b/${segment}/end`, JSON.stringify(name));
        assert.equal(decodeURIComponent(segment), name);
      },
    ),
    { numRuns: 2_000 },
  );
});
