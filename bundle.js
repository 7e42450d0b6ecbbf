// The scripts and style sheets of the pages, as the wheel carries them: node bundle.js WEB TARGET.
// What both pages load is one file of each kind that they share. Names say what a file contains, so
// that browsers keep it for good, and each lies there compressed as well.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const PAGES = ["index.html", "judge.html"];
const STYLE = /<link rel="stylesheet" href="static\/([^"]+)">\n/g;
const SCRIPT = /<script type="module" src="static\/([^"]+)"><\/script>/;

const [web, target] = process.argv.slice(2);
mkdirSync(target, { recursive: true });
const pages = PAGES.map((file) => {
  const text = readFileSync(join(web, file), "utf8");
  const styles = [...text.matchAll(STYLE)].map(([, style]) => style);
  const script = SCRIPT.exec(text)?.[1] ?? "";
  return { file, name: basename(file, ".html"), text, styles, script };
});
const common = pages[0].styles.filter((file) => pages.every(({ styles }) => styles.includes(file)));

/**
 * Write bundles by their entries, and each compressed; return esbuild's description of them.
 * @param {"js" | "css"} kind @param {{ [name: string]: string }} entries name: what it imports
 */
async function write(kind, entries) {
  const { outputFiles, metafile } = await build({
    entryPoints: Object.keys(entries).map((name) => ({ in: `entry:${name}`, out: name })),
    plugins: [
      {
        name: "entries",
        setup({ onLoad, onResolve }) {
          onResolve({ filter: /^entry:/ }, ({ path }) => ({ path, namespace: "entry" }));
          onLoad({ filter: /./, namespace: "entry" }, ({ path }) => {
            const contents = entries[path.slice("entry:".length)];
            return { contents, loader: kind, resolveDir: web };
          });
        },
      },
    ],
    entryNames: "[name]-[hash]",
    chunkNames: "shared-[hash]",
    bundle: true,
    splitting: kind === "js",
    minify: true,
    format: "esm",
    target: "esnext",
    metafile: true,
    write: false,
    outdir: target,
  });
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
  for (const { path, contents } of outputFiles) {
    writeFileSync(path, contents);
    writeFileSync(`${path}.gz`, gzipSync(contents, { level: 9 }));
    writeFileSync(`${path}.br`, brotliCompressSync(contents, quality));
  }
  return Object.entries(metafile.outputs).map(([path, { entryPoint, imports }]) => ({
    entry: entryPoint?.replace("entry:entry:", ""),
    file: `static/${basename(path)}`,
    imports: imports.map((one) => `static/${basename(one.path)}`),
  }));
}

/** @param {string[]} files */
const importAll = (files) => files.map((file) => `@import "./${file}";`).join("\n");
const sheets = await write("css", {
  shared: importAll(common),
  ...Object.fromEntries(
    pages.map(({ name, styles }) => [
      name,
      importAll(styles.filter((file) => !common.includes(file))),
    ]),
  ),
});
const scripts = await write(
  "js",
  Object.fromEntries(pages.map(({ name, script }) => [name, `import "./${script}";`])),
);
for (const { file, name, text } of pages) {
  const script = scripts.find(({ entry }) => entry === name);
  const head = [
    ...["shared", name].map(
      (sheet) =>
        `<link rel="stylesheet" href="${sheets.find(({ entry }) => entry === sheet)?.file}">`,
    ),
    ...(script?.imports ?? []).map((part) => `<link rel="modulepreload" href="${part}">`),
    `<script type="module" src="${script?.file}"></script>`,
  ];
  writeFileSync(join(target, file), text.replace(STYLE, "").replace(SCRIPT, head.join("\n")));
}
