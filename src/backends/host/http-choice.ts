/**
 * Selects the HTTP version from a backend's `protocol`.
 */
import type { BackendProtocol } from "../../core/backend.ts";
import type { HttpTarget } from "../../http/http-client.ts";

/** Throws if `protocol` requires TLS and the target does not use it, or the reverse. */
export function withHttpChoice<Target extends Pick<HttpTarget, "protocol">>(
  target: Target,
  protocol: BackendProtocol | undefined,
): Target & Pick<HttpTarget, "http"> {
  if (protocol === undefined || protocol === "http1") return target;
  const isTls = target.protocol === "https";
  if (protocol === "h2" && !isTls)
    throw new Error("protocol h2 needs TLS: write https://, add backendTLS, or use protocol h2c");
  if (protocol === "h2c" && isTls) throw new Error("protocol h2c is HTTP/2 without TLS: use protocol h2");
  return { ...target, http: protocol === "auto" ? "auto" : "http2" };
}
