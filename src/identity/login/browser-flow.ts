/**
 * Implements CSRF and cookie protection for browser flows: `oidc` sign-ins, the pages where users connect MCP
 * accounts, and the web UI.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import type { HeaderList } from "../../http/headers.ts";
import { canonicalOrigin } from "../../http/host.ts";
import { cookieValues, OWN_PREFIX } from "../access/cookies.ts";

/**
 * Other hosts of a domain can add cookies with the same name over plain HTTP. Cookies beyond this number are ignored.
 */
const MAX_SAME_NAME = 8;

/**
 * Returns why the request is not from a page of `origin`, or undefined if it is. Browsers send `Origin` with unsafe
 * methods, so a missing header is also a reason.
 */
export function foreignOrigin({ headers }: GatewayRequest, origin: string): string | undefined {
  const [from, ...more] = headers.getAll("origin");
  if (from === undefined) return `there is no Origin header, expected ${origin}`;
  if (from !== canonicalOrigin(origin) || more.length > 0) return `the origin is ${from}, expected ${origin}`;
  const site = headers.get("sec-fetch-site");
  if (site === undefined || site === "same-origin" || site === "none") return undefined;
  return `Sec-Fetch-Site is ${site}, expected same-origin`;
}

/**
 * Represents a cookie for the host of `url`. With TLS, the `__Host-` prefix prevents other hosts of the domain from
 * setting it.
 */
export class BrowserCookie {
  readonly name: string;
  readonly #isSecure: boolean;

  constructor(name: string, url: string) {
    this.#isSecure = new URL(url).protocol === "https:";
    this.name = `${this.#isSecure ? "__Host-" : ""}${OWN_PREFIX}${name}`;
  }

  /**
   * Returns the value of `set-cookie`. The cookie is `Lax`, not `Strict`, because browsers must send it when they
   * return from the identity provider.
   */
  line(value: string, maxAgeSeconds: number): string {
    const flags = `Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Lax${this.#isSecure ? "; Secure" : ""}`;
    return `${this.name}=${value}; ${flags}`;
  }

  clearing(): string {
    return this.line("", 0);
  }

  /** Returns several values, because the order of cookies with the same name does not reveal their origin. */
  read(headers: HeaderList): string[] {
    return cookieValues(headers, this.name).slice(0, MAX_SAME_NAME);
  }
}
