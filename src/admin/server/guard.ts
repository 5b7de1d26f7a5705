/**
 * Who may talk to the admin interface. Loopback is not a wall: any web page that the operator opens can send
 * requests there (DNS rebinding, cross-site requests), so Host and Origin are checked on every one.
 */
import { ADMIN_PATHS } from "./paths.ts";

export interface GuardedRequest {
  readonly method: string;
  readonly path: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  /** `sec-fetch-site` and `sec-fetch-mode`: what a browser says about who sends the request, and why. */
  readonly fetchSite: string | undefined;
  readonly fetchMode: string | undefined;
  /** The address on which the connection arrived; undefined where Host says nothing, as on a unix socket. */
  readonly localAddress: string | undefined;
}

/** The reason for a refusal, or undefined. */
export function refusalOf(request: GuardedRequest): string | undefined {
  if (request.localAddress !== undefined) {
    const name = hostName(request.host ?? "");
    if (!isLoopbackName(name) && name !== unmapped(request.localAddress))
      return "the Host header must be a loopback name or the address of the admin interface itself";
  }
  const isFromElsewhere =
    request.fetchSite !== undefined && request.fetchSite !== "none" && request.fetchSite !== "same-origin";
  if (isFromElsewhere && !opensPage(request)) return "requests from other sites are not allowed";
  if (request.origin !== undefined && originHost(request.origin) !== request.host)
    return "requests from another origin are not allowed";
  return undefined;
}

/**
 * A person follows a link to the UI, or an identity provider sends the browser back to it. That opens the page, which
 * is the same for everybody, and reads nothing of this process.
 */
function opensPage({ method, path, fetchMode }: GuardedRequest): boolean {
  const isPage =
    path === ADMIN_PATHS.ui || (path.startsWith(`${ADMIN_PATHS.ui}/`) && !path.startsWith(`${ADMIN_PATHS.ui}/api/`));
  return method === "GET" && fetchMode === "navigate" && isPage;
}

function hostName(host: string): string {
  const port = host.lastIndexOf(":");
  const name = port > host.lastIndexOf("]") ? host.slice(0, port) : host;
  return name.replace(/^\[|\]$/g, "").toLowerCase();
}

export function isLoopbackName(name: string): boolean {
  return name === "localhost" || name === "::1" || /^127(?:\.\d{1,3}){3}$/.test(name);
}

/** `null` and anything that is no URL give undefined, which equals no Host. */
function originHost(origin: string): string | undefined {
  try {
    return new URL(origin).host;
  } catch {
    return undefined;
  }
}

function unmapped(address: string): string {
  return address.startsWith("::ffff:") ? address.slice(7) : address;
}
