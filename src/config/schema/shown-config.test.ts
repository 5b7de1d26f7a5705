import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { createRedaction } from "../../record/trace/redact.ts";
import { shownConfig } from "./shown-config.ts";

const schema = z.object({ inner: z.object({ a: z.string() }).optional() });

for (const name of Object.getOwnPropertyNames(Object.prototype)) {
  test(`a field named ${name} is shown as it was written`, () => {
    for (const value of [1, "text", null, { a: 1 }, [{ a: 1 }]]) {
      const text = JSON.stringify({ inner: { a: "x" } }).replace('"a"', JSON.stringify(name));
      const written: unknown = JSON.parse(text.replace('"x"', JSON.stringify(value)));
      assert.equal(JSON.stringify(shownConfig(schema, written, createRedaction())), JSON.stringify(written));
    }
  });
}
