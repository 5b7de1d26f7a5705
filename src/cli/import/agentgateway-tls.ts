/**
 * `tls` of agentgateway's listeners. Those that share a port become certificates chosen by server name; certificates
 * that clients must show are a matter of the port here, so listeners that disagree about them are closed.
 */
import { type Conversion, defined, isObject, leaveOutOthers, type Values } from "./conversion.ts";

const TAKEN = ["cert", "key", "root", "minTLSVersion"];
/** What listeners ask of clients' certificates. */
const CLIENTS = "client certificates (`root`) differ between the listeners of a port";

export interface PortTls {
  readonly tls: Values | undefined;
  /** Why the routes of listeners with `root` cannot be served. */
  readonly conflict: string | undefined;
}

export function tlsOf(tls: Values, at: string, conversion: Conversion): Values {
  const { cert, key, root, minTLSVersion } = tls;
  leaveOutOthers(conversion, `${at}.tls.`, tls, TAKEN, "there is no counterpart");
  return defined({
    cert,
    key,
    minVersion: /1[._]?3/.test(String(minTLSVersion)) ? "TLSv1.3" : undefined,
    clientAuth: root === undefined ? undefined : { ca: root },
  });
}

export function portTls(listeners: readonly Values[], at: string, conversion: Conversion): PortTls {
  const entries = listeners.flatMap(({ tls, hostname }, index) =>
    isObject(tls) ? [{ hostname, ...tlsOf(tls, `${at}.listeners[${index}]`, conversion) } as Values] : [],
  );
  const [first] = entries;
  if (first === undefined) return { tls: undefined, conflict: undefined };
  if (entries.length < listeners.length)
    conversion.differs.push(
      `${at}: a port serves TLS for all of its listeners or for none; this one serves it for all`,
    );
  const { hostname: _hostname, ...only } = first;
  if (entries.length === 1) return { tls: only, conflict: undefined };
  const isSame = (field: string): boolean =>
    entries.every((entry) => JSON.stringify(entry[field]) === JSON.stringify(first[field]));
  const minVersion = entries.some((entry) => entry.minVersion !== undefined) ? "TLSv1.3" : undefined;
  const clientAuth = isSame("clientAuth") ? first.clientAuth : undefined;
  const certificates = entries.map(({ cert, key, hostname }) =>
    defined({ cert, key, hosts: hostname === undefined ? undefined : [hostname] }),
  );
  return {
    tls: defined({ certificates, minVersion, clientAuth }),
    conflict: isSame("clientAuth") ? undefined : CLIENTS,
  };
}
