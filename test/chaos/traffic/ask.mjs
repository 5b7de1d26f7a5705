/**
 * One request over HTTP with a client's patience, and one nonce for each.
 */
import { randomBytes } from "node:crypto";
import { Agent, fetch } from "undici";
import { Hang } from "../support/ledger.mjs";

/** Longer than every limit of the configuration and every fault: what takes longer never ends. */
export const PATIENCE_MS = 25_000;

/** Kept for a moment only, so that the gateway's descriptors can be counted in silence. */
const dispatcher = new Agent({ keepAliveTimeout: 2_000, keepAliveMaxTimeout: 2_000 });

export function newNonce() {
  return randomBytes(9).toString("base64url");
}

/** The status, headers and whole body. Throws when the connection fails, also in the middle of the body. */
export async function ask(world, path, init = {}) {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  try {
    const response = await fetch(`${world.url}${path}`, { ...init, signal, dispatcher });
    return { status: response.status, headers: response.headers, text: await response.text() };
  } catch (error) {
    if (signal.aborted) throw new Hang(`no answer to ${path} within ${PATIENCE_MS} ms`);
    throw new Error(`${path}: ${error.cause?.code ?? error.message}`);
  }
}

/** The same, and anything but the expected status is a failure. */
export async function askFor(status, world, path, init) {
  const answer = await ask(world, path, init);
  if (answer.status === status) return answer;
  throw new Error(
    `${path}: ${answer.status} ${answer.headers.get("x-gateway-error") ?? ""} ${answer.text.slice(0, 200)}`,
  );
}
