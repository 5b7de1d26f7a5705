/**
 * Parses `config.adminAddr` (spec 2.1), which is `ip:port`, `localhost:port`, `unix:/path`, or `off`. The default is
 * loopback on port 15000.
 */
import { hostOf } from "../../http/host.ts";
import { DEFAULT_ADMIN_PORT } from "./paths.ts";

export type AdminAddress =
  | { readonly kind: "off" }
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "tcp"; readonly hosts: readonly string[]; readonly port: number };

const LOOPBACK = ["127.0.0.1", "::1"];

export function parseAdminAddress(text: string | undefined): AdminAddress {
  if (text === undefined) return { kind: "tcp", hosts: LOOPBACK, port: DEFAULT_ADMIN_PORT };
  if (text === "off") return { kind: "off" };
  if (text.startsWith("unix:")) return { kind: "unix", path: text.slice("unix:".length) };
  const colon = text.lastIndexOf(":");
  const host = hostOf(text) || text.slice(0, colon);
  return { kind: "tcp", hosts: host === "localhost" ? LOOPBACK : [host], port: Number(text.slice(colon + 1)) };
}
