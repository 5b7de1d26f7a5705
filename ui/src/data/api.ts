/**
 * Sends requests of the page to the gateway. Except for signing out, the paths are below `/ui/api/`, so that the page
 * works on the admin address and, with fewer endpoints, on a gateway listener.
 */
import { isSignedOut, noteFailure, noteResponse } from "./connection.ts";

export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

const BASE = "/ui/api/";

export async function getJson<Value>(name: string, signal?: AbortSignal): Promise<Value> {
  const response = await request(name, { signal: signal ?? null });
  return (await response.json()) as Value;
}

export async function getText(name: string, signal?: AbortSignal): Promise<string> {
  return (await request(name, { signal: signal ?? null })).text();
}

export async function getBytes(name: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await request(name, { signal: signal ?? null })).arrayBuffer();
}

export async function postJson<Value>(name: string, body: unknown, signal?: AbortSignal): Promise<Value> {
  const response = await request(name, { ...jsonBody(body), signal: signal ?? null });
  return (await response.json()) as Value;
}

export async function postText(name: string): Promise<string> {
  return (await request(name, { method: "POST" })).text();
}

/** Calls `onLine` with each line as it arrives. Resolves when the response ends. */
export async function streamLines(
  name: string,
  onLine: (line: string) => void,
  options: { body?: unknown; signal?: AbortSignal } = {},
): Promise<void> {
  const init = options.body === undefined ? {} : jsonBody(options.body);
  const response = await request(name, { ...init, signal: options.signal ?? null });
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  }
  if (rest !== "") onLine(rest);
}

/** Ends the session at the gateway. Resolves with the logout URL of the identity provider, if there is one. */
export async function signOut(path: string): Promise<string | null> {
  const response = await fetch(path, { method: "POST", cache: "no-store", headers: { accept: "application/json" } });
  if (!response.ok) throw new ApiError(response.status, (await response.text()).trim());
  isSignedOut.value = true;
  return ((await response.json()) as { location: string | null }).location;
}

function jsonBody(body: unknown): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

async function request(name: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(BASE + name, { ...init, cache: "no-store" });
  } catch (error) {
    // An AbortError means that the user left the page. All other errors, including timeouts, mean that the gateway is
    // unavailable.
    if ((error as Error).name === "AbortError") throw error;
    noteFailure();
    throw new ApiError(0, "the gateway does not respond");
  }
  noteResponse();
  isSignedOut.value = response.status === 401;
  if (response.ok || response.status === 503) return response;
  const text = (await response.text()).trim();
  throw new ApiError(
    response.status,
    text === "" ? `the gateway responded with ${response.status}` : text.slice(0, 2000),
  );
}
