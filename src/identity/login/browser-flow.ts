/**
 * The two protections of every flow that runs in a browser (sign-ins with `oidc`, the pages where users connect MCP accounts, the
 * web UI): a request that relies on the browser must come from a page of the gateway itself, and the cookies of a flow cannot
 * be set by another host where browsers can prevent that. Backends never receive these cookies.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import type { HeaderList } from "../../http/headers.ts";

/** Every cookie of the gateway has this prefix, after `__Host-` where there is TLS. */
const OWN_PREFIX = "gateway_";
/** Other hosts of a domain can add cookies of the same name over plain HTTP; more of them are not looked at. */
const MAX_SAME_NAME = 8;

/**
 * Undefined if a page of `origin` sent the request; otherwise the reason for the log. Browsers send `Origin` with every request that
 * is not a mere read, so a request without it is rejected as well.
 */
export function foreignOrigin({ headers }: GatewayRequest, origin: string): string | undefined {
  const [from, ...more] = headers.getAll("origin");
  if (from === undefined) return `there is no Origin header, expected ${origin}`;
  if (from !== origin || more.length > 0) return `the origin is ${from}, expected ${origin}`;
  const site = headers.get("sec-fetch-site");
  if (site === undefined || site === "same-origin" || site === "none") return undefined;
  return `Sec-Fetch-Site is ${site}, expected same-origin`;
}

/**
 * A cookie for the host of `url`, the URL under which browsers reach the gateway. With TLS the `__Host-` prefix stops other hosts of
 * the domain from setting it; it requires `Path=/`. Without a `Domain` attribute browsers send it to this host only.
 */
export class BrowserCookie {
  readonly name: string;
  readonly #isSecure: boolean;

  constructor(name: string, url: string) {
    this.#isSecure = new URL(url).protocol === "https:";
    this.name = `${this.#isSecure ? "__Host-" : ""}${OWN_PREFIX}${name}`;
  }

  /**
   * The value of `set-cookie`. `Lax` and not `Strict`: a browser that returns from the identity provider must send it. Requests that
   * change something are checked by their origin as well.
   */
  line(value: string, maxAgeSeconds: number): string {
    const flags = `Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Lax${this.#isSecure ? "; Secure" : ""}`;
    return `${this.name}=${value}; ${flags}`;
  }

  /** The value of `set-cookie` that deletes it. */
  clearing(): string {
    return this.line("", 0);
  }

  /** All values, because the order of cookies with the same name says nothing about their origin. */
  read(headers: HeaderList): string[] {
    const start = `${this.name}=`;
    return cookiePairs(headers)
      .filter((pair) => pair.startsWith(start))
      .slice(0, MAX_SAME_NAME)
      .map((pair) => pair.slice(start.length));
  }
}

/** Removes the cookies of the gateway from a request that goes to a backend. */
export function withholdOwnCookies(headers: HeaderList): void {
  if (!headers.has("cookie") || !headers.getAll("cookie").some((line) => line.includes(OWN_PREFIX))) return;
  const others = cookiePairs(headers).filter((pair) => !/^(?:__Host-)?gateway_/.test(pair));
  if (others.length === 0) headers.delete("cookie");
  else headers.set("cookie", others.join("; "));
}

function cookiePairs(headers: HeaderList): string[] {
  // HTTP/2 clients may send one line per cookie.
  return headers.getAll("cookie").flatMap((line) => line.split(";").map((pair) => pair.trim()));
}
