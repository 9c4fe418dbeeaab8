from sluice_autoscaler.main import main

if __name__ == "__main__":
    main()
