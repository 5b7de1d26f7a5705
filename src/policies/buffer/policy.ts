/**
 * `buffer`: reads the whole request body before the backend is called, and rejects larger bodies.
 */
import { z } from "zod";
import { GatewayError } from "../../core/errors.ts";
import { definePolicy } from "../../core/policy.ts";

const MAX_BUFFER_BYTES = 32 * 1024 * 1024;

export const buffer = definePolicy({
  kind: "buffer",
  doc: "Reads the whole request body before the backend is called, and rejects larger bodies with 413.",
  scopes: ["route"],
  role: "security",
  protection: () => "paths",
  schema: z.strictObject({
    request: z
      .strictObject({
        maxBytes: z
          .int()
          .min(1)
          .max(MAX_BUFFER_BYTES)
          .describe("The largest request body in bytes. Larger requests get 413. At most 33554432."),
      })
      .describe("The request body."),
  }),

  compile: ({ request: { maxBytes } }) => ({
    shape: {
      bodyBytes: () => maxBytes,
      head({ request: { body } }) {
        // An earlier policy can have read the body with a higher limit, or replaced it.
        if (body.kind === "bytes" && body.bytes.length > maxBytes) throw new GatewayError("body_too_large");
        return undefined;
      },
    },
  }),
});
