/**
 * The request methods that the gateway accepts, in every version of HTTP. Methods are case-sensitive (RFC 9110 section
 * 9.1), but many frameworks convert them to uppercase, so another spelling could pass a rule and be executed.
 */

const METHODS = new Set(
  (
    "GET POST PUT DELETE HEAD OPTIONS PATCH CONNECT TRACE ACL BIND CHECKOUT COPY LINK LOCK M-SEARCH MERGE MKACTIVITY " +
    "MKCALENDAR MKCOL MOVE NOTIFY PROPFIND PROPPATCH PURGE REBIND REPORT SEARCH SOURCE SUBSCRIBE UNBIND UNLINK UNLOCK UNSUBSCRIBE"
  ).split(" "),
);

/** Other methods share a metric label, so that clients choose from few series (RFC 9110 section 9.3 and RFC 5789). */
const LABELS = new Set(["", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]);

const BEGINNING = /^([A-Z][A-Z-]{0,14})( |$)/;

/** Checks a request of which only the beginning has arrived. */
export function beginsWithMethod(text: string): boolean {
  const [, method, end] = BEGINNING.exec(text) ?? [];
  return method !== undefined && (end === "" || METHODS.has(method));
}

export function isKnownMethod(method: string): boolean {
  return METHODS.has(method);
}

/** Only metric labels use this value. Rules and backends receive the method itself. */
export function methodLabel(method: string): string {
  return LABELS.has(method) ? method : "other";
}
