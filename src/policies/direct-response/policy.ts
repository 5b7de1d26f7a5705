/**
 * `directResponse`: the route returns a fixed response and calls no backend.
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { changeableHeaderName, headerValue } from "../../core/schema.ts";
import { HeaderList } from "../../http/headers.ts";

export const directResponse = definePolicy({
  kind: "directResponse",
  doc: "Returns a fixed status, body and headers instead of calling a backend.",
  scopes: ["route"],
  schema: z.strictObject({
    status: z.int().min(200).max(599).default(200).describe("The response's status."),
    body: z.string().optional().describe("The response's body."),
    headers: z
      .record(changeableHeaderName(), headerValue())
      .optional()
      .describe("Response headers; the default content-type is text/plain."),
  }),

  compile(config) {
    const body = Buffer.from(config.body ?? "");
    const pairs = Object.entries(config.headers ?? {}).flat();
    if (body.length > 0 && config.headers?.["content-type"] === undefined)
      pairs.push("content-type", "text/plain; charset=utf-8");
    return {
      // Later hooks change the headers in place, so every response gets a copy.
      request: () => ({ status: config.status, headers: new HeaderList(pairs.slice()), body }),
    };
  },
});
