from sluice_downloader.worker import main

if __name__ == "__main__":
    main()
