/**
 * Implements `gateway --health [address]`, which checks whether a gateway is ready, for containers without a shell or
 * curl.
 */
import { request } from "node:http";
import { type AdminAddress, parseAdminAddress } from "../admin/server/address.ts";
import { ADMIN_PATHS } from "../admin/server/paths.ts";

/** The timeout is shorter than Docker's default timeout of a health check, which is 30 s. */
const TIMEOUT_MS = 2_000;

export interface Health {
  readonly isReady: boolean;
  readonly message: string;
}

/** `address` has the format and the default of `config.adminAddr`. */
export function checkHealth(address: string | undefined): Promise<Health> {
  const target = parseAdminAddress(address);
  if (target.kind === "off" || (target.kind === "tcp" && !(target.port > 0 && target.port < 65_536)))
    return Promise.resolve({ isReady: false, message: `${address} is no address: use ip:port or unix:/path` });
  return new Promise((resolve) => {
    const failed = (why: string): void =>
      resolve({ isReady: false, message: `no gateway answers at ${address ?? "its default admin address"}: ${why}` });
    const asked = request({ ...connectionTo(target), path: ADMIN_PATHS.ready, timeout: TIMEOUT_MS }, (answer) => {
      let body = "";
      answer.setEncoding("utf8");
      answer.on("data", (text: string) => {
        body += text;
      });
      answer.on("end", () => resolve({ isReady: answer.statusCode === 200, message: body.trim() }));
      answer.on("error", (error) => failed(error.message));
    });
    asked.on("timeout", () => asked.destroy(new Error(`nothing within ${TIMEOUT_MS / 1_000} s`)));
    asked.on("error", (error) => failed(error.message));
    asked.end();
  });
}

export function connectionTo(address: Exclude<AdminAddress, { kind: "off" }>): object {
  if (address.kind === "unix") return { socketPath: address.path };
  const [host = ""] = address.hosts;
  // A wildcard address is reached over loopback.
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return { host: reachable, port: address.port };
}
