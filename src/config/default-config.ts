/**
 * The embedded configuration: what runs without `-f`, on loopback only, and what is printed to try it.
 */

export const DEFAULT_CONFIG = `# The embedded default: loopback only.
gateways:
  default:
    port: \${PORT:-3000}
    address: 127.0.0.1
routes:
  - name: hello
    policies:
      directResponse:
        status: 200
        body: |
          The gateway works. Write a config.yaml and start it with: gateway -f config.yaml
`;

export function thingsToTry(port: number, adminUrl: string | undefined): string {
  const lines = ["", `  HTTP   http://127.0.0.1:${port}/`, `         curl http://127.0.0.1:${port}/`];
  if (adminUrl !== undefined) lines.push(`  Admin  ${adminUrl}/`, `         curl ${adminUrl}/config_dump`);
  return `${lines.join("\n")}\n\n  Ctrl-C ends it.\n\n`;
}
