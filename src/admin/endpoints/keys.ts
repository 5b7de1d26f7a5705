/**
 * `/keys` lists the API keys in the store, without the keys themselves, which are not stored. POST creates a key, which
 * is shown only in that response, or revokes one.
 */

import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import { keyRequest, type StoredKey, type StoredKeys } from "../../identity/passwords/stored-keys.ts";
import { defined } from "../../json/json.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { StoreUnavailable } from "../../store/store.ts";
import { type AdminEndpoint, type AdminResponse, jsonResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const BODY = peerInput("admin-client/body");

const order = z.union([z.strictObject({ make: keyRequest }), z.strictObject({ revoke: z.string().min(1).max(64) })]);

export interface KeyStore extends StoredKeys {
  /** Resolves to undefined if the key has no budget. The amount covers the current period. */
  spent(key: StoredKey): Promise<number | undefined>;
  nowMs(): number;
}

export function keysEndpoint(keys: KeyStore): AdminEndpoint {
  return {
    path: ADMIN_PATHS.keys,
    doc: 'API keys of the store; POST {"make": {"name", …}} or {"revoke": "<id>"}.',
    GET: () => withStoreErrors(async () => jsonResponse({ keys: await Promise.all((await keys.list()).map(shown)) })),
    POST: (request) =>
      withStoreErrors(async () => {
        const parsed = order.safeParse(tryReadJson(BODY, await request.body()));
        if (!parsed.success) return jsonResponse({ error: describeProblem(parsed.error) }, 400);
        if ("make" in parsed.data) return jsonResponse(await keys.make(parsed.data.make));
        const { revoke } = parsed.data;
        if (await keys.revoke(revoke)) return jsonResponse({ revoked: revoke });
        return jsonResponse({ error: `there is no key ${JSON.stringify(revoke)}; see gwctl keys list` }, 400);
      }),
  };

  async function shown(key: StoredKey): Promise<object> {
    const { digest: _, createdAtMs, expiresAtMs, ...rest } = key;
    const spent = await keys.spent(key);
    return {
      ...rest,
      createdAt: new Date(createdAtMs).toISOString(),
      ...(expiresAtMs === undefined
        ? {}
        : { expiresAt: new Date(expiresAtMs).toISOString(), expired: expiresAtMs <= keys.nowMs() }),
      ...defined({ spent }),
    };
  }
}

async function withStoreErrors(work: () => Promise<AdminResponse>): Promise<AdminResponse> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return jsonResponse({ error: error.message }, 503);
  }
}

/** For a union, returns the first error of an alternative that names a field. */
function describeProblem({ issues: [issue] }: z.ZodError): string {
  const inner = issue?.code === "invalid_union" ? issue.errors.flat().find(({ path }) => path.length > 0) : issue;
  return inner === undefined
    ? 'send {"make": {"name", …}} or {"revoke": "<id>"}'
    : `${inner.path.join(".")}: ${inner.message}`;
}
