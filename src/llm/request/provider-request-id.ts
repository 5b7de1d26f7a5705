/**
 * The id under which a provider keeps its answer. Its own `x-request-id` gives way to the gateway's in the response, so
 * it is kept for the log and the trace.
 */
import type { HeaderList } from "../../http/headers.ts";

const NAMES = ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-goog-request-id"];
/** It goes into log lines. */
const FORM = /^[\w.:/+=-]{1,128}$/;

export function providerRequestId(headers: HeaderList): string | undefined {
  for (const name of NAMES) {
    const value = headers.get(name);
    if (value !== undefined && FORM.test(value)) return value;
  }
  return undefined;
}
