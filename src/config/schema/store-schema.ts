/**
 * `config.store`: where data lives that must outlive the process or be shared by replicas.
 */
import { z } from "zod";
import { duration } from "../../core/schema.ts";

const folder = z.strictObject({
  folder: z
    .string()
    .min(1)
    .describe("A folder that the gateway writes to, relative to this file. One gateway at a time uses it."),
});

const redis = z.strictObject({
  redis: z
    .string()
    .refine(isRedisUrl, "expected redis://[user:password@]host[:port][/database], or rediss:// for TLS")
    // It may hold a password.
    .meta({
      secret: true,
      description:
        "`redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS. Redis 6.2 or newer. Replicas that share it share sessions and budgets.",
    }),
  prefix: z.string().max(64).default("gateway:").describe("Stands before every key. Default: `gateway:`."),
  timeout: duration()
    .default(1_000)
    .describe("How long one operation may take before the store counts as unavailable. Default: 1s."),
  ca: z.string().min(1).optional().describe("With `rediss://`: a PEM file with the authorities to trust."),
});

export const storeSchema = z.union([z.literal("memory"), folder, redis]);

function isRedisUrl(text: string): boolean {
  try {
    const { protocol, hostname, pathname, search } = new URL(text);
    const isDatabase = /^\/?\d*$/.test(pathname);
    return (protocol === "redis:" || protocol === "rediss:") && hostname !== "" && isDatabase && search === "";
  } catch {
    return false;
  }
}
