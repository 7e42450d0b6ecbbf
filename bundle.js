// One script and one style sheet for each page of the service, as the wheel carries them:
// node bundle.js WEB TARGET. Their names say what they contain, so that browsers keep them for
// good, and each lies there compressed as well.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const PAGES = ["index.html", "judge.html"];
const STYLE = /<link rel="stylesheet" href="static\/([^"]+)">\n/g;
const SCRIPT = /<script type="module" src="static\/([^"]+)"><\/script>/;

const [web, target] = process.argv.slice(2);
mkdirSync(target, { recursive: true });

/**
 * Write the code that an entry imports as one file; return its name.
 * @param {string} name @param {"js" | "css"} kind @param {string} entry
 */
async function write(name, kind, entry) {
  const { outputFiles } = await build({
    stdin: { contents: entry, resolveDir: web, loader: kind },
    bundle: true,
    minify: true,
    format: kind === "js" ? "esm" : undefined,
    target: "esnext",
    write: false,
    outdir: target,
  });
  const code = outputFiles[0].contents;
  const hash = createHash("sha256").update(code).digest("hex").slice(0, 12);
  const file = join(target, `${name}-${hash}.${kind}`);
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
  writeFileSync(file, code);
  writeFileSync(`${file}.gz`, gzipSync(code, { level: 9 }));
  writeFileSync(`${file}.br`, brotliCompressSync(code, quality));
  return `static/${name}-${hash}.${kind}`;
}

for (const page of PAGES) {
  const text = readFileSync(join(web, page), "utf8");
  const name = page.replace(".html", "");
  const styles = [...text.matchAll(STYLE)].map(([, file]) => `@import "./${file}";`);
  const style = await write(name, "css", styles.join("\n"));
  const script = await write(name, "js", `import "./${SCRIPT.exec(text)?.[1]}";`);
  const head = `<link rel="stylesheet" href="${style}">\n`;
  const html = text
    .replace(STYLE, "")
    .replace(SCRIPT, `${head}<script type="module" src="${script}"></script>`);
  writeFileSync(join(target, page), html);
}
