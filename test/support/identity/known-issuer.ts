/**
 * An issuer whose keys the gateway reads from a file, and its tokens, for scenarios without a login.
 */
import type { TestContext } from "node:test";
import { createSigningKey, keySetOf, signToken } from "./tokens.ts";

/** Closed when the test ends, however it ends. */
export function kept<Thing extends { close(): Promise<void> }>(context: TestContext, thing: Thing): Thing {
  context.after(() => thing.close());
  return thing;
}

export const key = createSigningKey("ES256", "k1");
export const ISSUER = "http://localhost:8080/realms/mcp";

export function token(claims: Record<string, unknown> = {}): string {
  const exp = Math.floor(Date.now() / 1000) + 86_400;
  return signToken({ key, claims: { iss: ISSUER, aud: "gateway", sub: "alice", exp, ...claims } });
}

/** Beside the configuration, which names it as `jwks: ./jwks.json`. */
export const KEYS_FILE = { "jwks.json": JSON.stringify(keySetOf(key)) };
