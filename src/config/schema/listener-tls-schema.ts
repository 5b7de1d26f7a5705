/**
 * `tls` of a gateway: certificates by server name, floors, and certificates of clients.
 */
import { z } from "zod";

const SERVER_NAME = /^(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$/;
const certFile = z.string().min(1).describe("A PEM file with the certificate chain, or the PEM text itself.");
const keyFile = z.string().min(1).describe("A PEM file with the private key, or the PEM text itself.");

export const listenerTls = z
  .strictObject({
    cert: certFile.optional(),
    key: keyFile.optional(),
    certificates: z
      .array(
        z.strictObject({
          cert: certFile,
          key: keyFile,
          hosts: z
            .array(z.string().regex(SERVER_NAME, "expected a host name, or `*.` and a host name"))
            .min(1)
            .optional()
            .describe("Server names (SNI) that get this certificate, also `*.example.com`. Default: those in it."),
        }),
      )
      .min(1)
      .optional()
      .describe("Several certificates, chosen by server name. `cert`, else the first one, where no name fits."),
    minVersion: z.enum(["TLSv1.2", "TLSv1.3"]).default("TLSv1.2").describe("The lowest version that is spoken."),
    ciphers: z.string().min(1).optional().describe("Cipher suites as an OpenSSL list. Default: those of Node.js."),
    clientAuth: z
      .strictObject({
        ca: z.string().min(1).describe("A PEM file with the certificates that sign those of clients, or the PEM text."),
        mode: z
          .enum(["require", "optional"])
          .default("require")
          .describe("`optional`: clients without a certificate pass. One that does not verify never does."),
      })
      .optional()
      .describe("Asks clients for certificates; the subject is readable in CEL as `source.identity`."),
  })
  .refine((value) => (value.cert === undefined) === (value.key === undefined), {
    message: "`cert` and `key` must be set together",
  })
  .refine((value) => value.cert !== undefined || value.certificates !== undefined, {
    message: "set `cert` and `key`, or `certificates`",
  });
