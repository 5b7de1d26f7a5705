/**
 * `config.audit`: what is recorded of calls to tools and models, and where it goes.
 */
import { z } from "zod";
import { secret } from "../../core/schema.ts";

const MIB = 1024 * 1024;

export const auditSchema = z
  .strictObject({
    file: z
      .strictObject({
        path: z.string().min(1).describe("The file; one JSON object per line, readable by the gateway's user only."),
        maxBytes: z
          .int()
          .min(64 * 1024)
          .default(100 * MIB)
          .describe("A larger file is renamed to `<path>.1` and a new one begins. Default: 104857600."),
        keep: z.int().min(0).max(1000).default(10).describe("How many renamed files are kept. Default: 10."),
      })
      .optional()
      .describe("Writes records to a file. A relative path is resolved from the working directory."),
    otlp: z
      .boolean()
      .optional()
      .describe("Exports records as OTLP log records; needs `config.telemetry.otlp` with `logs` among its `signals`."),
    arguments: z
      .enum(["none", "hash", "whole"])
      .default("hash")
      .describe(
        "Arguments of MCP calls and bodies of LLM requests: left out, their SHA-256, or redacted text. Default: hash.",
      ),
    results: z
      .enum(["none", "hash", "whole"])
      .default("none")
      .describe(
        "Results of MCP calls and texts of LLM answers: left out, their SHA-256, or redacted text. Default: none.",
      ),
    hashKey: secret()
      .optional()
      .describe("Key of the hashes (HMAC-SHA-256), so that short arguments cannot be guessed from their hash."),
    maxValueChars: z
      .int()
      .min(64)
      .max(1024 * 1024)
      .default(16_384)
      .describe("Longer arguments and results are cut in the record. Default: 16384."),
    required: z
      .boolean()
      .default(false)
      .describe(
        "Whether calls are rejected (503 `audit_unavailable`) while the file cannot be written. Default: false.",
      ),
  })
  .refine(({ file, otlp }) => file !== undefined || otlp === true, "expected `file`, `otlp: true`, or both");

export type AuditSettings = z.output<typeof auditSchema>;
