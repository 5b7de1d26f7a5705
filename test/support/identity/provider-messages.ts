/**
 * Adapts requests and responses for the identity provider library.
 */
import type { IncomingMessage, ServerResponse } from "node:http";

/** The library reads a body that a framework parsed before it. */
export function bodyFor(request: IncomingMessage, text: string): unknown {
  if (text === "") return undefined;
  if (request.headers["content-type"]?.startsWith("application/json")) return JSON.parse(text);
  const form = new URLSearchParams(text);
  form.delete("resource");
  return Object.fromEntries(form);
}

/** The library always sends it: taken out again where this provider would not. */
export function withIssFor(response: ServerResponse, sendsIss: () => boolean): void {
  const setHeader = response.setHeader.bind(response);
  response.setHeader = (name, value) => {
    if (name.toLowerCase() !== "location" || typeof value !== "string" || !URL.canParse(value))
      return setHeader(name, value);
    const url = new URL(value);
    if (!sendsIss()) url.searchParams.delete("iss");
    return setHeader(name, url.href);
  };
}
